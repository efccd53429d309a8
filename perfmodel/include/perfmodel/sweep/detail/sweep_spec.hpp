#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/detail/scale_out.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::sweep {

/// Where a graph of a sweep comes from.
struct GraphSource {
  std::string name = {};            ///< unique in the sweep
  std::filesystem::path file = {};  ///< the graph's file; empty: it is built
  std::string builder = {};         ///< "dlrm", as `perfpredict build` calls it
  /// Of the builder, by name: flags without dashes and their values, "true" and "false" of those
  /// that take none.
  std::vector<std::pair<std::string, std::string>> options = {};
  /// A measured step of the graph, from which its rows start (`Predictor::match_step`).
  struct Measured {
    double us = 0;
    std::string gpu = {};    ///< one of the sweep's; empty: its first
    std::int64_t batch = 0;  ///< 0: the graph's
  };
  std::optional<Measured> measured = {};
  std::filesystem::path folder = {};  ///< the spec's folder, for files among the options
  std::string identity = {};          ///< 8 hex digits of the graph's sources
};

/// A rewrite and the values that are tried.
struct RewriteAxis {
  struct Value {
    std::string text;                          ///< as the flag takes it, or "same"
    std::optional<NamedRewrite> rewrite = {};  ///< none: "same", the graph is left as it is
  };
  std::string name = {};  ///< "batch", the flag without dashes
  std::vector<Value> values = {};
};

struct GpuChoice {
  std::string name = {};      ///< as `perfpredict gpus` lists the GPU
  std::string asked = {};     ///< name or path of the file, for PredictorConfig
  std::string identity = {};  ///< 8 hex digits of the file's content; empty: a known GPU
  std::vector<std::string> stand_ins = {};  ///< GPUs that its prices rely on, see `stand_ins(gpu)`
};

struct StrategyChoice {
  std::optional<ParallelStrategy> strategy = {};  ///< none: the graph of one rank as it is
  std::int64_t world = 0;                         ///< 0: not given

  bool operator==(const StrategyChoice&) const = default;
};

/// All that is to be predicted: graphs x rewrites x GPUs x topologies x strategies.
struct SweepSpec {
  std::vector<GraphSource> graphs;
  std::vector<RewriteAxis> axes;
  /// Positions of `axes` in the order in which rewrites are applied, which is not the spec's.
  std::vector<std::size_t> applied = {};
  std::vector<GpuChoice> gpus;
  std::vector<std::string> topologies = {"usual"};  ///< "usual": what each GPU usually sits in
  std::vector<StrategyChoice> strategies = {{}};
  std::string models = "learned";        ///< as PredictorConfig takes it
  std::filesystem::path overheads = {};  ///< as PredictorConfig takes it
  double host_scale = 1;                 ///< for all rows
};

/// Builders and rewrites by the names that a spec has for them.
struct GraphToolbox {
  /// Names of rewrites, in the order in which a sweep applies them.
  std::vector<std::string> rewrites = {};
  /// Errors: a name or value that is none.
  std::function<Result<NamedRewrite>(const std::string& name, const std::string& value)> rewrite;
  /// Builds a graph; called from several threads. Errors: an unknown builder (`json_pointer`:
  /// "/build") or option ("/options/NAME"), options that do not fit together ("/options").
  std::function<Result<ExecutionGraph>(const GraphSource&)> build;
  /// The options that name files.
  std::function<std::vector<std::filesystem::path>(const GraphSource&)> files;
};

/// Reads a spec: JSON of schema `perfmodel-sweep` 1 (docs/sweep.md has every key). Files are
/// relative to the spec's folder. Every built graph is built once as a check; graph files are only
/// hashed. GPUs are names of `data`/gpus, or files; topologies are built-in names.
///
/// Errors, with the place: unknown keys, repeated keys and values, unknown names, values that a
/// rewrite or builder does not take, files that cannot be read, more than `kMostRows` rows.
Result<SweepSpec> read_sweep_spec(const std::filesystem::path& file, const GraphToolbox& toolbox,
                                  const std::filesystem::path& data);

inline constexpr std::uint64_t kMostRows = 1'000'000'000;

}  // namespace perfmodel::sweep
