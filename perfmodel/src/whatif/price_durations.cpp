#include "perfmodel/job_duration.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/normal_quantile.hpp"
#include "job_duration_results.hpp"

namespace perfmodel {
namespace {

Result<void> check_amount(const std::optional<double>& amount, const char* name) {
  if (!amount || (std::isfinite(*amount) && *amount > 0)) return {};
  return decline(std::string(name) + ": expected a number above 0");
}

Question question_of(const JobDurationQuestion& asked, const PreparedGraph& graph,
                     const std::string& gpu, std::int64_t world) {
  Question made{.prepared = &graph, .gpu = gpu, .options = asked.ask};
  made.options.world = world > 1 ? world : 0;
  made.options.times_only = false;  // quantiles need the range
  if (world == 1) made.options.strategy.reset();
  if (world > 1 && !made.options.strategy) made.options.strategy = ParallelStrategy::kDdp;
  return made;
}

JobDuration duration_of(const JobDurationQuestion& question, const Prediction& predicted,
                        JobDuration row) {
  row.step_us = predicted.e2e_us;
  row.low_us = predicted.e2e_low_us;
  row.high_us = predicted.e2e_high_us;
  row.samples_per_s = predicted.samples_per_s().value_or(0);
  row.samples_per_step = row.samples_per_s * row.step_us / 1e6;
  if (predicted.memory.device_bytes > 0) {
    row.needed_bytes = predicted.memory.needed_bytes();
    row.device_bytes = predicted.memory.device_bytes;
    row.fits = predicted.memory.fits();
  }
  set_steps(question, row);
  return row;
}

}  // namespace

Result<void> check_question(const JobDurationQuestion& question) {
  if (question.worlds.empty() || std::ranges::min(question.worlds) < 1) {
    return decline("worlds: expected numbers of GPUs of at least 1");
  }
  if (question.samples && question.tokens) {
    return decline("expected samples or tokens, found both");
  }
  if (question.tokens && question.ask.sequence < 1) {
    return decline("sequence: expected the tokens of a sample with tokens");
  }
  auto good = check_amount(question.samples, "samples");
  return good ? check_amount(question.tokens, "tokens") : good;
}

void set_steps(const JobDurationQuestion& question, JobDuration& row) {
  auto samples = question.samples;
  if (question.tokens) samples = *question.tokens / static_cast<double>(question.ask.sequence);
  row.steps.reset();
  if (!samples || row.error) return;
  row.steps = std::max(1.0, std::ceil(*samples / row.samples_per_step - 1e-9));
}

std::optional<double> JobDuration::seconds(double share) const {
  if (!steps || error) return std::nullopt;
  constexpr double kEndOfRange = 1.6448536269514722;  // 5 % of a normal distribution are above
  const double z = normal_quantile(share) / kEndOfRange;
  const double end = z < 0 ? low_us : high_us;
  return *steps * step_us * std::pow(end / step_us, std::abs(z)) / 1e6;
}

Result<std::vector<JobDuration>> job_durations(const Predictor& predictor,
                                               const PreparedGraph& graph,
                                               const JobDurationQuestion& question) {
  PERFMODEL_TRY_TO(check_question(question));
  const auto gpus = question.gpus.empty() ? predictor.gpus() : question.gpus;
  std::vector<Question> questions;
  std::vector<JobDuration> rows;
  for (const std::string& gpu : gpus) {
    PERFMODEL_TRY(known, predictor.gpu(gpu));
    for (const std::int64_t world : question.worlds) {
      questions.push_back(question_of(question, graph, gpu, world));
      rows.push_back({.gpu = known->name, .world = world});
    }
  }
  PERFMODEL_TRY(answers, predictor.predict_many(questions, {.threads = question.threads,
                                                            .cancel = question.ask.cancel}));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto& answer = (*answers)[i];
    if (!answer && answer.error().code == ErrorCode::kCancelled) return Unexpected{answer.error()};
    if (!answer) {
      rows[i].error = answer.error();
    } else if (!answer->samples_per_s()) {
      return decline("expected a graph whose batch is known");
    } else {
      rows[i] = duration_of(question, *answer, std::move(rows[i]));
    }
  }
  return rows;
}

}  // namespace perfmodel
