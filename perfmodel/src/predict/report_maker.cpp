#include "predict/report_maker.hpp"

#include <algorithm>
#include <utility>

#include "base/contains.hpp"
#include "base/file_name.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"

namespace perfmodel {

Result<void> ReportMaker::choose_models(std::int64_t ranks, const Gpu* gpu) {
  PERFMODEL_TRY(models, choose_kernel_models(question_.models));
  chosen_ = std::move(*models);
  report_.models = chosen_.warning.empty() ? question_.models : "heuristic";
  warn(chosen_.warning);
  if (question_.topology.empty()) return {};
  PERFMODEL_TRY(found, TopologyCatalog::builtin().find(question_.topology));
  topology_ = std::move(*found);
  PERFMODEL_TRY_TO(check_fits(*topology_, ranks));
  if (gpu && std::ranges::find(topology_->gpus, gpu->name) == topology_->gpus.end()) {
    warn("topology " + topology_->name + " is not built with " + gpu->name +
         ": only its links are used");
  }
  for (std::string& sentence : stand_ins(*topology_)) warn(std::move(sentence));
  return {};
}

RankPrediction ReportMaker::rank_of(const std::string& graph_file, ExecutionGraph graph,
                                    const ChosenOverheads& host, double host_scale) const {
  return {.graph_file = without_names(file_name(graph_file)),
          .graph = std::move(graph),
          .overheads_file = host.file,
          .overheads_method = host.table->method,
          .overheads_gpu = host.table->gpu,
          .overheads_sources = host.table->sources,
          .overheads_programs = host.table->programs,
          .host_scale = host_scale};
}

bool ReportMaker::communicates() const {
  return std::ranges::any_of(report_.ranks, [](const RankPrediction& rank) {
    return rank.prediction.communication.collectives > 0;
  });
}

Result<void> ReportMaker::finish(const PredictionQuestion::Iterations& iterations) {
  for (RankPrediction& rank : report_.ranks) {
    if (question_.stages > 1) continue;  // the recorded rank may not have the whole batch
    if (const auto batch = samples_per_step(rank.graph)) rank.prediction.batch = *batch;
  }
  if (chosen_.owner) report_.model_files = chosen_.owner->files_read();
  const RankPrediction& slowest = report_.ranks[report_.slowest()];
  report_.work = step_work(slowest.graph, report_.gpu, slowest.prediction.batch, iterations);
  return chosen_.check();
}

std::string ReportMaker::without_names(std::string text) const {
  if (question_.anonymizer) question_.anonymizer->replace(text);
  return text;
}

void ReportMaker::warn(std::string warning) {
  if (warning.empty()) return;
  add_once(report_.warnings, without_names(std::move(warning)));
}

}  // namespace perfmodel
