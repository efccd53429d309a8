#include "layout/layout_advice.hpp"

#include <fmt/format.h>

#include "layout/decoder_in_graph.hpp"
#include "layout/layout_request.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/predictor.hpp"

namespace perfmodel {
namespace {

// The flags of `layout rank` that ask the same, without activations, which no flag names.
std::string command_of(const LayoutJob& job, const LayoutAdviceQuestion& question) {
  const DecoderModel& model = job.model;
  std::string command = fmt::format(
      "perfpredict layout rank --layers {} --hidden {} --heads {} --feed-forward {} --vocabulary "
      "{} --positions {}{}{}",
      model.layers, model.hidden, model.heads, model.feed_forward, model.vocabulary,
      model.positions, model.gated ? " --gated" : " --no-gated",
      model.tied ? " --tied" : " --no-tied");
  if (model.kv_heads > 0) command += fmt::format(" --kv-heads {}", model.kv_heads);
  command += fmt::format(
      "{} --world {} --global-batch {} --sequence {} --precision {} --attention {} --optimizer {}",
      question.machine_flags, question.world, job.global_batch, job.sequence,
      to_string(job.precision), to_string(job.attention), to_string(job.optimizer));
  if (job.dropout > 0) command += fmt::format(" --dropout {:g}", job.dropout);
  if (question.host_scale != 1) command += fmt::format(" --scale-host {:g}", question.host_scale);
  return command;
}

}  // namespace

Result<LayoutPlanAdvice> layout_advice(const ExecutionGraph& graph,
                                       const LayoutAdviceQuestion& question) {
  PERFMODEL_TRY(job, decoder_in_graph(graph));
  job->global_batch *= question.world;
  PERFMODEL_TRY(predictor, Predictor::load({.gpus = {question.gpu}}));
  PERFMODEL_TRY(pricer, LayoutPricer::make(*predictor, {.gpu = question.gpu,
                                                        .topology = question.topology,
                                                        .host_scale = question.host_scale}));
  PERFMODEL_TRY(found, rank_layouts(*pricer, *job, question.world));
  if (found->best.empty()) {
    return decline(nothing_fits(*found, question.world));
  }
  const RankedLayout& best = found->best.front();
  LayoutPlanAdvice advice{.step_us = 1e3 * best.prediction.step_ms,
                          .memory_bytes = best.prediction.reserved_bytes,
                          .layout = layout_words(best.layout),
                          .software = best.prediction.software,
                          .command = command_of(*job, question)};
  ParallelLayout as_it_is;
  as_it_is.dp = question.world;
  as_it_is.micro_batch = job->global_batch / question.world;
  if (const auto ddp = pricer->predict(*job, as_it_is)) {
    advice.replicated_us = 1e3 * ddp->step_ms;
    advice.replicated_fits = ddp->fits;
  }
  return advice;
}

}  // namespace perfmodel
