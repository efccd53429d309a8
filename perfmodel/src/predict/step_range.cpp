#include "step_range.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/stop_point.hpp"
#include "perfmodel/predictors/detail/summed_range.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

using Times = ScheduleVariants::Times;

constexpr Times kAsPredicted = {1, 1, 1, 1};

/// Factors on the durations of a rank's tasks with short kernels, a fast host, long kernels, a slow
/// host.
struct Paces {
  Times device = kAsPredicted, host = kAsPredicted;
};

Result<Paces> paces_of(const HostProgram& program) {
  Paces paces;
  const auto& hosts = program.coverage.own_pace ? kSameHosts : kOtherHosts;
  paces.host = {1, hosts.front(), 1, hosts.back()};
  SummedRange sum;
  for (const PredictedKernel& kernel : program.kernels) {
    sum.add(kernel.family, kernel.price, Microseconds{kernel.limited_us});
  }
  const auto [time, least, most] = sum.range();
  if (time.count() <= 0) return paces;
  paces.device = {least / time, 1, most / time, 1};
  const auto is_factor = [](double x) { return x >= 0 && std::isfinite(x); };
  if (std::ranges::all_of(paces.device, is_factor)) return paces;
  return decline(fmt::format("expected kernels of finite times of at least 0 us, found {} to {}",
                             least.count(), most.count()));
}

Result<std::vector<Times>> paces_by_lane(std::span<const RankProgram> programs,
                                         const JobTasks& tasks) {
  std::vector<Times> made;
  for (std::size_t r = 0; r < programs.size(); ++r) {
    PERFMODEL_TRY(paces, paces_of(programs[r].program));
    made.resize(made.size() + ProgramTasks::kStreamLanes, paces->device);
    made.resize(tasks.ranks[r]->end_lane(), paces->host);
  }
  return made;
}

}  // namespace

Result<std::vector<StepRange>> step_ranges(std::span<const double> steps_us,
                                           std::span<const RankProgram> programs,
                                           const JobTasks& tasks) {
  stop_point();
  PERFMODEL_TRY(paces, paces_by_lane(programs, tasks));
  ScheduleVariants variants{.factors = std::move(*paces), .end_us = {}, .start_us = {}};
  for (const auto& rank : tasks.ranks) {
    if (tasks.started) variants.start_us[rank->pass_begins().back()] = {};
  }
  PERFMODEL_TRY_TO(run_schedule(tasks.graph, variants));
  std::vector<StepRange> ranges;
  for (std::size_t r = 0; r < steps_us.size(); ++r) {
    const auto squared = [&](std::size_t variant) {
      const double step_us = pass_us(tasks, r, variants, variant) /
                             static_cast<double>(programs[r].program.steps.size());
      return (step_us - steps_us[r]) * (step_us - steps_us[r]);
    };
    ranges.push_back({.low_us = std::max(0.0, steps_us[r] - std::sqrt(squared(0) + squared(1))),
                      .high_us = steps_us[r] + std::sqrt(squared(2) + squared(3))});
  }
  return ranges;
}

}  // namespace perfmodel
