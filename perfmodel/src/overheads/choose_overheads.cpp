#include "perfmodel/choose_overheads.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "base/file_name.hpp"
#include "own_host.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"

namespace perfmodel {
namespace {

std::string foreign(const ChosenOverheads& chosen, const Gpu& gpu) {
  const std::string& names = chosen.table->gpu;
  if (!chosen.table->programs.empty()) return {};  // brought to one host: of no GPU in particular
  if (recorded_beside(*chosen.table, gpu)) return {};
  return "the overheads of " + chosen.file + " were taken on " +
         (names.empty() ? "an unnamed GPU" : names) + ", not on " + gpu.name +
         ": its host and launch times may differ";
}

Result<void> take_out_collector_of(OverheadTable& table, const OverheadSource& source) {
  PERFMODEL_TRY(data, find_data_folder());
  OverheadTables tables(*data);
  if (source.graph) return tables.take_collector_out(table, *source.trace, *source.graph);
  PERFMODEL_TRY(program, graph_from_trace(*source.trace));
  return tables.take_collector_out(table, *source.trace, program->graph);
}

}  // namespace

Result<ChosenOverheads> OverheadTables::read(const std::filesystem::path& file) {
  auto known = read_.find(file);
  if (known == read_.end()) {
    PERFMODEL_TRY(table, read_overheads(file));
    known = read_.emplace(file, std::make_shared<const OverheadTable>(std::move(*table))).first;
  }
  return ChosenOverheads{.file = file.filename().string(), .table = known->second};
}

Result<ChosenOverheads> OverheadTables::measured(const Gpu& gpu) {
  std::error_code ignored;
  const auto own = folder_ / (gpu.name + ".json");
  if (std::filesystem::is_regular_file(own, ignored)) return read(own);
  std::vector<std::string> known;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".json" && name != kReferenceHost) known.push_back(name);
  }
  std::ranges::sort(known);
  return decline(
      fmt::format("expected host overheads recorded with {}, found tables of {}: take the "
                  "reference host, or a table made from your own trace",
                  gpu.name, known.empty() ? "none" : fmt::to_string(fmt::join(known, ", "))),
      folder_);
}

Result<ChosenOverheads> OverheadTables::named(std::string_view host) {
  return read(folder_ / (std::string(host) + ".json"));
}

Result<ChosenOverheads> OverheadTables::choose(const std::string& which, const Gpu& gpu) {
  if (which == kMeasuredHost) return measured(gpu);
  if (which.empty() || which == kReferenceHost) return named(kReferenceHost);
  if (which == kServerOf2023) return named(kServerOf2023);
  auto chosen = read(which);
  if (chosen) chosen->warning = foreign(*chosen, gpu);
  return chosen;
}

Result<void> OverheadTables::take_collector_out(OverheadTable& table, const Trace& trace,
                                                const ExecutionGraph& graph) {
  PERFMODEL_TRY(reference, named(kReferenceHost));
  // Launches are hardly others on another GPU.
  const auto gpus = folder_.parent_path() / "gpus";
  auto gpu = find_known_gpu(trace.gpu_name(), gpus);
  if (!gpu) gpu = find_gpu("v100-sxm2-32gb", gpus);
  if (!gpu) return Unexpected{gpu.error()};
  return perfmodel::take_collector_out(table, *reference->table, graph, *gpu);
}

Result<ChosenOverheads> OverheadTables::own(const Trace& trace, const ExecutionGraph& graph,
                                            bool recorded) {
  const OverheadSource source{.trace = &trace, .graph = &graph};
  PERFMODEL_TRY(table, extract_overheads(std::span(&source, 1), {}));
  if (!recorded) PERFMODEL_TRY_TO(take_collector_out(*table, trace, graph));
  return ChosenOverheads{.file = std::filesystem::path(trace.source).filename().string(),
                         .table = std::make_shared<const OverheadTable>(std::move(*table))};
}

Result<OverheadTable> learn_overheads(std::span<const OverheadSource> sources,
                                      const OverheadOptions& options, bool recorded) {
  PERFMODEL_TRY(table, extract_overheads(sources, options));
  if (options.method == OverheadMethod::kContext && !recorded) {
    PERFMODEL_TRY_TO(take_out_collector_of(*table, sources.front()));
  }
  std::vector<std::string> warnings;
  for (const OverheadSource& source : sources) {
    for (const std::string& warning : source.trace->warnings) {
      warnings.push_back(file_name(source.trace->source) + ": " + warning);
    }
  }
  table->warnings.insert(table->warnings.begin(), warnings.begin(), warnings.end());
  return table;
}

}  // namespace perfmodel
