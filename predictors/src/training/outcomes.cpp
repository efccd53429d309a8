#include "outcomes.hpp"

#include <cmath>

namespace perfmodel::training {

using learned::LearnedModel;

Outcome outcome_of(const LearnedModel& model, const Sample& sample) {
  Outcome outcome;
  const KernelWork& work = sample.row->work;
  outcome.price = KernelModels::heuristic().price(work, *sample.gpu);
  model.refine(work, *sample.gpu, outcome.price, &outcome.distance);
  outcome.knowledge = model.knowledge(*sample.gpu);
  outcome.measured_us = sample.row->measured_us;
  const learned::LaunchCost* cost =
      sample.has_launch_cost ? model.launch_cost(sample.gpu->name, *sample.op) : nullptr;
  const double time = outcome.price.time.count();
  outcome.predicted_us = cost ? cost->measured(time) : time;
  outcome.above_floor = !cost || outcome.measured_us > 1.15 * cost->floor_us;
  outcome.kernel_us = outcome.measured_us - (cost ? cost->dispatch_us : 0);
  return outcome;
}

std::vector<Outcome> outcomes_of(const LearnedModel& model, const Samples& samples) {
  std::vector<Outcome> outcomes;
  outcomes.reserve(samples.size());
  for (const Sample& sample : samples) outcomes.push_back(outcome_of(model, sample));
  return outcomes;
}

Validation validation_of(const std::vector<Outcome>& outcomes, const Samples& samples) {
  Validation validation;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    validation.measured_us.push_back(outcomes[i].measured_us);
    validation.predicted_us.push_back(outcomes[i].predicted_us);
    validation.gpus.push_back(samples[i].gpu->name);
    validation.ops.push_back(*samples[i].op);
  }
  return validation;
}

double kernel_error(const std::vector<Outcome>& outcomes) {
  double sum = 0, count = 0;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.above_floor) continue;
    sum += std::abs(outcome.price.time.count() / outcome.kernel_us - 1);
    ++count;
  }
  return count > 0 ? sum / count : 0;
}

KeptOutRows rows_above_floor(const std::vector<Outcome>& outcomes, const Samples& samples) {
  KeptOutRows rows;
  for (std::size_t i = 0; i < outcomes.size(); ++i) {
    if (!outcomes[i].above_floor) continue;
    const std::uint64_t sweep = sweep_key(samples[i]);
    rows.push_back({.gpu = samples[i].gpu->name,
                    .architecture = samples[i].gpu->architecture.name,
                    .vendor = samples[i].gpu->vendor,
                    .distance = outcomes[i].distance,
                    .ratio = outcomes[i].kernel_us / outcomes[i].price.time.count(),
                    .unit = sweep != 0 ? sweep : shape_key(samples[i])});
  }
  return rows;
}

}  // namespace perfmodel::training
