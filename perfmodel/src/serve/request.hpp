#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layout/layout_fields.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "perfmodel/predictor.hpp"

namespace perfmodel::serve {

enum class Op {
  kPing,
  kGpus,
  kStats,
  kHealth,
  kLoad,
  kBuild,
  kUnload,
  kPredict,
  kExplain,
  kMatchStep,
  kLayout,
  kLayoutRank,
  kOptimize,
  kDuration,
  kAsk
};

/// A problem of a request, other than errors of the library.
struct Problem {
  std::string code;  ///< "bad_request", ...
  std::string message;
};

/// A command of perfpredict. Lists and objects are JSON text within the line; empty: none.
struct AskedCommand {
  std::string command;  ///< "whatif", "shard rank"
  std::string_view arguments, options;
  std::string_view files;    ///< by name, to be found by the command
  std::string_view outputs;  ///< names of files that the command writes
};

/// One request, with the options of a prediction and the command. Its text is copied except
/// `inline_graph` and the parts of the command.
struct Request : AskOptions, AskedCommand {
  std::string id = "null";  ///< as JSON, to be repeated in the answer
  Op op = Op::kPing;
  std::string name;               ///< graph to load, build, unload or keep from a command
  std::string file;               ///< to load
  std::string_view inline_graph;  ///< JSON text within the line
  std::string graph, gpu;
  std::vector<NamedRewrite> rewrites;     ///< applied first, after batch and sequence
  std::string family, preset, optimizer;  ///< model to build, as are batch and sequence
  std::int64_t layers = 0;
  double measured_us = 0;
  LayoutAsk layout;  ///< the job and the layout of layout and layout_rank, or a search's limits
  std::int64_t top = 10;
  std::string allow, objective;  ///< for optimize: "precision,fusion"; "step"
  double memory_limit_gb = 0;    ///< 0: all memory of the GPU
  double time_budget_s = 60;
  std::string_view gpus, worlds;          ///< for duration: lists of names and numbers as JSON text
  std::optional<double> samples, tokens;  ///< the length of the job
};

/// Name of the operation, "predict".
std::string_view op_name(const Request& request);

/// Reads one line into `request`; the id even if the rest is wrong. `line` may grow by padding and
/// must outlive `request`.
std::optional<Problem> parse_request(std::string& line, Request& request);

}  // namespace perfmodel::serve
