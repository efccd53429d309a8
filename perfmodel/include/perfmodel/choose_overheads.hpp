#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "perfmodel/overheads.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// An overhead table, with a warning for the user about the choice.
struct ChosenOverheads {
  std::string file;  ///< name without folders
  std::shared_ptr<const OverheadTable> table;
  std::string warning = {};  ///< empty: the reference host, or measured with this GPU
};

/// Words that `OverheadTables::choose` takes in place of a file.
inline constexpr std::string_view kReferenceHost = "reference", kMeasuredHost = "measured",
                                  kServerOf2023 = "v100-server-2023";

/// The overhead tables of predictions. Reads each file once.
class OverheadTables {
 public:
  /// Uses the tables in `data`/overheads.
  explicit OverheadTables(const std::filesystem::path& data) : folder_(data / "overheads") {}

  /// `which`: "reference" or empty, one host for every GPU, from the tables of several programs, so
  /// that a comparison shows GPUs and not hosts; "measured", the table recorded with this GPU;
  /// "v100-server-2023", the host that recorded the papers' DLRM under the profiler; anything else
  /// is a file. Errors: a file that cannot be read; no recorded table for this GPU (names the
  /// tables that exist).
  Result<ChosenOverheads> choose(const std::string& which, const Gpu& gpu);

  /// The host of the program that `trace` recorded, with `graph` as its graph: without the
  /// profiler's cost, or with it if `recorded`. The table's warnings say more. Errors: as for
  /// `extract_overheads`.
  Result<ChosenOverheads> own(const Trace& trace, const ExecutionGraph& graph,
                              bool recorded = false);

  /// Takes the profiler's cost out of a table learnt from `trace` (see own_host.hpp).
  Result<void> take_collector_out(OverheadTable& table, const Trace& trace,
                                  const ExecutionGraph& graph);

 private:
  Result<ChosenOverheads> read(const std::filesystem::path& file);
  Result<ChosenOverheads> measured(const Gpu& gpu);
  Result<ChosenOverheads> named(std::string_view host);

  std::filesystem::path folder_;
  std::map<std::filesystem::path, std::shared_ptr<const OverheadTable>> read_;
};

/// `extract_overheads`, then takes the collector's cost out of a table by context unless
/// `recorded`; the first source says which program was recorded. Warnings of the traces come first,
/// after the names of their files. Errors: as for `extract_overheads` and `predict`.
Result<OverheadTable> learn_overheads(std::span<const OverheadSource> sources,
                                      const OverheadOptions& options, bool recorded);

}  // namespace perfmodel
