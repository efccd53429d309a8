#include "write_plan.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "base/progress_bar.hpp"
#include "load_study.hpp"
#include "perfmodel/detail/output_file.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "plan_words.hpp"
#include "sharding/hugectr_plan_file.hpp"
#include "sharding/plan_export.hpp"
#include "sharding/sharded_graph.hpp"
#include "sharding/torchrec_plan_file.hpp"

namespace perfmodel::sharding {
namespace {

Result<void> write_graphs(const LoadedStudy& loaded, const std::vector<TablePlacement>& placements,
                          const std::filesystem::path& folder) {
  PERFMODEL_TRY(config, sharded_dlrm(loaded.study, placements));
  // The first graph is built before a folder is made, as it may be impossible.
  PERFMODEL_TRY(graph, graph_of_rank(*config, loaded.study));
  PERFMODEL_TRY_TO(make_folder(folder));
  std::vector<OutputFile> files;  // named once all are written
  ProgressBar bar("graphs", static_cast<std::size_t>(config->world_size));
  for (std::int64_t rank = 0; rank < config->world_size; ++rank) {
    config->rank = rank;
    graph = graph_of_rank(*config, loaded.study);
    if (!graph) return Unexpected{graph.error()};
    PERFMODEL_TRY(
        file, write_unnamed_execution_graph(*graph, folder / fmt::format("rank_{}.json", rank)));
    files.push_back(std::move(*file));
    bar.advance();
  }
  for (OutputFile& file : files) PERFMODEL_TRY_TO(file.commit());
  return {};
}

}  // namespace

Result<LoadedStudy> load_study_for(const std::string& format, const ShardQuestion& question) {
  const bool is_table_file = format.starts_with("hugectr") || format == "csv";
  return load_study(question).map([&](LoadedStudy loaded) {
    if (format == "graphs" || (is_table_file && question.choose.empty())) {
      loaded.study.searched = {};
    }
    return loaded;
  });
}

std::string lost_settings(const LoadedStudy& loaded, std::span<const TablePlacement> placements,
                          const std::string& format) {
  const bool has_no_place = format.starts_with("hugectr") || format == "csv";
  for (std::size_t t = 0; has_no_place && t < placements.size(); ++t) {
    if (!used_settings(placements[t]).any()) continue;
    return fmt::format(
        "{} has no place for what was chosen for tables ({}: {}); --choose none "
        "plans without",
        format, loaded.study.tables[t].name, settings_of(placements[t]));
  }
  return "";
}

Result<void> write_plan(const LoadedStudy& loaded, const std::vector<TablePlacement>& placements,
                        const std::string& format, const std::string& output,
                        const std::string& module) {
  const std::vector<ShardedTable>& tables = loaded.study.tables;
  const std::int64_t world = *loaded.study.world, local_world = *loaded.study.local_world;
  if (format == "graphs") return write_graphs(loaded, placements, output);
  const auto write = [&](const std::string& text) { return write_file(output, text); };
  if (format == "csv") return plan_csv(tables, placements, world, local_world).and_then(write);
  if (format == "torchrec") {
    std::vector<std::string> modules;
    if (!module.empty()) modules.push_back(module);
    return torchrec_plan_text(tables, placements, world, local_world, modules).and_then(write);
  }
  return hugectr_plan(tables, placements, world, local_world,
                      format == "hugectr" ? HugectrBucket::kGpu : HugectrBucket::kNode)
      .map(hugectr_plan_text)
      .and_then(write);
}

}  // namespace perfmodel::sharding
