#include "shard_export.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "base/progress_bar.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "shard_report.hpp"
#include "sharding/hugectr_plan_file.hpp"
#include "sharding/plan_export.hpp"
#include "sharding/sharded_graph.hpp"
#include "sharding/torchrec_plan_file.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

using namespace sharding;

// As the dense part computes: tables and their vectors stay in fp32, as autocast leaves them.
Result<ExecutionGraph> graph_of_rank(const TorchrecDlrmConfig& config, const std::string& dtype) {
  using Precision = PrecisionOptions::Precision;
  auto graph = build_torchrec_dlrm(config);
  if (!graph || dtype == "float32") return graph;
  const Precision precision = dtype == "tf32"      ? Precision::kTf32
                              : dtype == "float16" ? Precision::kFp16
                                                   : Precision::kBf16;
  return rewrite_precision(*graph, {.precision = precision});
}

Result<void> export_graphs(const LoadedStudy& loaded, const std::vector<TablePlacement>& placements,
                           const std::filesystem::path& folder) {
  auto config = sharded_dlrm(loaded.study, placements);
  if (!config) return Unexpected{config.error()};
  // The first graph is built before a folder is made for what may be impossible.
  const std::string& dtype = loaded.study.dense->dtype;  // sharded_dlrm() refuses studies without
  auto graph = graph_of_rank(*config, dtype);
  if (!graph) return Unexpected{graph.error()};
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    return fail(ErrorCode::kIo, fmt::format("{}: expected a folder that can be made, found: {}",
                                            folder.string(), failure.message()));
  }
  std::vector<OutputFile> files;  // named once all are written
  ProgressBar bar("graphs", static_cast<std::size_t>(config->world_size));
  for (std::int64_t rank = 0; rank < config->world_size; ++rank) {
    config->rank = rank;
    graph = graph_of_rank(*config, dtype);
    if (!graph) return Unexpected{graph.error()};
    auto file = write_unnamed_execution_graph(*graph, folder / fmt::format("rank_{}.json", rank));
    if (!file) return Unexpected{file.error()};
    files.push_back(std::move(*file));
    bar.advance();
  }
  for (OutputFile& file : files) {
    if (auto named = file.commit(); !named) return named;
  }
  return {};
}

}  // namespace

Result<void> export_plan(const LoadedStudy& loaded, const std::vector<TablePlacement>& placements,
                         const std::string& format, const std::string& output,
                         const std::string& module) {
  const std::vector<ShardedTable>& tables = loaded.study.tables;
  const std::int64_t world = *loaded.study.world, local_world = *loaded.study.local_world;
  // Neither format has a place for them.
  const bool has_no_place = format.starts_with("hugectr") || format == "csv";
  for (std::size_t t = 0; has_no_place && t < placements.size(); ++t) {
    if (!used_settings(placements[t]).any()) continue;
    warn(
        fmt::format("{} has no place for what was chosen for tables ({}: {}); --choose none plans "
                    "without",
                    format, tables[t].name, settings_of(placements[t])));
    break;
  }
  if (format == "graphs") return export_graphs(loaded, placements, output);
  if (format == "csv") return write_plan_csv(output, tables, placements, world, local_world);
  if (format == "torchrec") {
    std::vector<std::string> modules;
    if (!module.empty()) modules.push_back(module);
    return write_torchrec_plan(output, tables, placements, world, local_world, modules);
  }
  const auto plan = hugectr_plan(tables, placements, world, local_world,
                                 format == "hugectr" ? HugectrBucket::kGpu : HugectrBucket::kNode);
  if (!plan) return Unexpected{plan.error()};
  return write_hugectr_plan(output, *plan);
}

}  // namespace perfmodel::cli
