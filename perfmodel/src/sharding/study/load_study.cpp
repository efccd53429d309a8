#include "load_study.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "builders/named_models.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "question_changes.hpp"
#include "shard_fields.hpp"
#include "sharding/hugectr_plan_file.hpp"
#include "sharding/study_file.hpp"
#include "sharding/study_tables.hpp"
#include "sharding/table_lists.hpp"
#include "sharding/tables_in_graph.hpp"
#include "sharding/torchrec_plan_file.hpp"

namespace perfmodel::sharding {
namespace {

constexpr std::size_t kHeadBytes = 4096;

std::string file_name(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// The first bytes of a file, to tell kinds of JSON apart; nothing of a compressed one.
std::string head_of(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string head(kHeadBytes, '\0');
  stream.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(stream.gcount());
  return head;
}

// A study may leave its schema out; a graph has nodes.
bool is_study(const std::string& head) {
  const auto has = [&](const char* text) { return head.find(text) != std::string::npos; };
  return has("perfmodel-sharding-study") ||
         (has("\"tables\"") && has("\"rows\"") && !has("\"nodes\""));
}

ShardingStudy study_of(GraphTables found) {
  ShardingStudy study;
  study.tables = std::move(found.tables);
  study.dense = std::move(found.dense);
  study.batch_per_rank = found.batch;
  study.warnings = std::move(found.warnings);
  return study;
}

Result<ShardingStudy> read_tables(const std::string& file) {
  if (file.ends_with(".csv") || file.ends_with(".csv.gz")) return read_table_csv(file);
  const std::string head = head_of(file);
  if (is_study(head)) return read_sharding_study(file);
  if (is_table_list(head)) return read_table_list(file);
  auto model = graph_of_model(file);
  auto graph = model ? std::move(*model) : read_execution_graph(file, {.dash_is_stdin = true});
  return std::move(graph).and_then(tables_in_graph).map(study_of);
}

// A plan of TorchRec for the tables and the world of the study.
Result<std::vector<TablePlacement>> matched(const NamedPlan& plan, const std::string& file,
                                            const ShardingStudy& study) {
  if (plan.world && *plan.world != *study.world) {
    return decline(fmt::format("{}: expected a plan for {} GPUs, found one for {}", file_name(file),
                               *study.world, *plan.world));
  }
  return match_plan(study.tables, plan);
}

}  // namespace

Result<LoadedStudy> load_study(const ShardQuestion& question) {
  PERFMODEL_TRY(study,
                check_words(question).and_then([&] { return read_tables(question.tables); }));
  LoadedStudy loaded{
      .file = file_name(question.tables),
      .study = std::move(*study),
      .options = {.software = question.software == "per-table" ? TableSoftware::kPerTable
                                                               : TableSoftware::kFused,
                  .host_us = question.host_us},
      .time_budget_s = question.time_budget_s,
      .seed = question.seed,
      .is_torchrec = question.costs == "torchrec"};
  loaded.warnings = loaded.study.warnings;
  for (const auto step : {set_job, fit_accesses, change_tables, change_dense_part, choose_machine,
                          hash_tables, choose_models, choose_host}) {
    PERFMODEL_TRY_TO(step(question, loaded));
  }
  if (!loaded.is_torchrec && !calibration_of(loaded.gpu, loaded.options.software).known) {
    loaded.warnings.push_back(
        fmt::format("no measured DLRM system with {}: times are not calibrated", loaded.gpu.name));
  }
  return loaded;
}

Result<std::vector<TablePlacement>> load_plan(const std::string& file, const LoadedStudy& loaded) {
  const ShardingStudy& study = loaded.study;
  const std::string head = head_of(file);
  if (head.find("\"shard_matrix\"") != std::string::npos ||
      head.find("strategy\"") != std::string::npos) {
    return read_hugectr_plan(file).and_then([&](const HugectrPlan& plan) {
      return hugectr_placements(plan, study.tables, *study.world, *study.local_world);
    });
  }
  return read_torchrec_plan(file).and_then(
      [&](const NamedPlan& plan) { return matched(plan, file, study); });
}

}  // namespace perfmodel::sharding
