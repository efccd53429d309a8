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

/// An overhead table and what the user should know about the choice.
struct ChosenOverheads {
  std::string file;  ///< its name, no folders
  std::shared_ptr<const OverheadTable> table;
  std::string warning = {};  ///< empty: the reference host, or taken on this GPU
};

/// Words that `OverheadTables::choose` takes in place of a file.
inline constexpr std::string_view kReferenceHost = "reference", kMeasuredHost = "measured",
                                  kServerOf2023 = "v100-server-2023";

/// The overhead tables that predictions take; reads each file once.
class OverheadTables {
 public:
  /// Those of `data`/overheads.
  explicit OverheadTables(const std::filesystem::path& data) : folder_(data / "overheads") {}

  /// `which`: "reference" or empty, the table of several programs brought to one host, the same for
  /// every GPU, so that GPUs and not hosts are compared; "measured", the table that was recorded
  /// beside this GPU; "v100-server-2023", the host that recorded the DLRM of the papers, under the
  /// profiler; anything else is a file. Errors: a file that cannot be read; no recorded table of
  /// this GPU (with those that there are).
  Result<ChosenOverheads> choose(const std::string& which, const Gpu& gpu);

  /// The host of the program that `trace` recorded, `graph` being its graph: without what recorded
  /// it, or as it was recorded. What to know stands in the table's warnings. Errors: those of
  /// `extract_overheads`.
  Result<ChosenOverheads> own(const Trace& trace, const ExecutionGraph& graph,
                              bool recorded = false);

  /// Takes out of a table of `trace` what recorded it (see own_host.hpp).
  Result<void> take_collector_out(OverheadTable& table, const Trace& trace,
                                  const ExecutionGraph& graph);

 private:
  Result<ChosenOverheads> read(const std::filesystem::path& file);
  Result<ChosenOverheads> measured(const Gpu& gpu);
  Result<ChosenOverheads> named(std::string_view host);

  std::filesystem::path folder_;
  std::map<std::filesystem::path, std::shared_ptr<const OverheadTable>> read_;
};

/// `extract_overheads`. A table by context loses what the collector of its traces added, unless it
/// is asked for as recorded; the first source says which program was recorded. Warnings of the
/// traces come first, after the names of their files. Errors: also the errors of a prediction.
Result<OverheadTable> learn_overheads(std::span<const OverheadSource> sources,
                                      const OverheadOptions& options, bool recorded);

}  // namespace perfmodel
