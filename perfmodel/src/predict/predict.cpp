#include "perfmodel/predict.hpp"

#include <algorithm>
#include <iterator>

#include "pipeline.hpp"
#include "predict_with.hpp"
#include "program/host_program.hpp"
#include "program/lower_program.hpp"

namespace perfmodel {
namespace {

void tell_first(std::vector<std::string> sentences, std::vector<std::string>& warnings) {
  warnings.insert(warnings.begin(), std::make_move_iterator(sentences.begin()),
                  std::make_move_iterator(sentences.end()));
}

}  // namespace

Result<Prediction> predict(const ExecutionGraph& graph, const Gpu& gpu, const OverheadTable& table,
                           const PredictOptions& options) {
  auto prediction = predict_with(graph, gpu, table, nullptr, options);
  if (prediction) tell_first(stand_ins(gpu), prediction->warnings);
  return prediction;
}

Result<JobPrediction> predict_job(std::span<const RankInput> ranks, const Gpu& gpu,
                                  const JobOptions& options) {
  for (const RankInput& rank : ranks) {
    PERFMODEL_TRY_TO(check_input(*rank.graph, rank.options));
    if (rank.table->method == OverheadMethod::kLin && ranks.size() > 1) {
      return decline(
          "expected overheads of method context for ranks that wait for each other, found method "
          "lin");
    }
  }
  auto job = predict_ranks(ranks, gpu, options);
  if (job) tell_first(stand_ins(gpu), ranks.size() == 1 ? job->ranks[0].warnings : job->warnings);
  return job;
}

Result<double> predict_host_us(const ExecutionGraph& graph, const Gpu& gpu,
                               const OverheadTable& table) {
  PERFMODEL_TRY_TO(check_input(graph, {}));
  PERFMODEL_TRY(facts, make_host_times(graph, table, std::nullopt));
  PERFMODEL_TRY(lowered, lower_program(graph, gpu, table, *facts, {}, false));
  PERFMODEL_TRY_TO(check_times(lowered->program, graph));
  return host_us_per_step(lowered->program);
}

std::vector<std::size_t> predicted_launches(const ExecutionGraph& graph, const Gpu& gpu,
                                            const LaunchTemplates* templates, TemplateUse use) {
  Lowering lowering(graph, gpu, templates, OpRuleRegistry::builtin(), use);
  std::vector<std::size_t> launches;
  for (std::int32_t node : top_level_ops(graph)) {
    const LoweredOp op = lowering.lower(node);
    launches.push_back(static_cast<std::size_t>(std::count_if(
        op.calls.begin(), op.calls.end(),
        [](const LoweredCall& call) { return call.call->kind != TemplateCall::Kind::kSync; })));
  }
  return launches;
}

}  // namespace perfmodel
