#include "step_range.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/stop_point.hpp"
#include "perfmodel/predictors/detail/summed_range.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

/// Factors on the durations of a rank's tasks.
struct Pace {
  double device = 1, host = 1;
};

/// The paces of a rank's short and long kernels.
std::array<Pace, 2> paces_of_kernels(const HostProgram& program) {
  SummedRange sum;
  for (const PredictedKernel& kernel : program.kernels) {
    sum.add(kernel.family, kernel.price, Microseconds{kernel.limited_us});
  }
  const auto [time, least, most] = sum.range();
  if (time.count() <= 0) return {};
  return {Pace{.device = least / time}, Pace{.device = most / time}};
}

std::array<Pace, 2> paces_of_host(const HostProgram& program) {
  const auto& scales = program.coverage.own_pace ? kSameHosts : kOtherHosts;
  return {Pace{.host = scales.front()}, Pace{.host = scales.back()}};
}

/// A task whose duration follows the pace of its rank.
struct PacedTask {
  TaskId task = -1;
  std::size_t rank = 0;
  bool on_device = false;
};

std::vector<PacedTask> paced_tasks(const JobTasks& tasks) {
  std::vector<PacedTask> made;
  std::vector<std::size_t> rank_of_lane;
  for (std::size_t r = 0; r < tasks.ranks.size(); ++r) {
    rank_of_lane.resize(tasks.ranks[r]->end_lane(), r);
  }
  for (std::size_t i = 0; i < tasks.graph.size(); ++i) {
    const auto task = static_cast<TaskId>(i);
    const std::int32_t lane = tasks.graph.lane(task);
    if (lane < 0 || tasks.graph.duration_us(task) == 0) continue;
    const std::size_t rank = rank_of_lane[lane];
    made.push_back({task, rank, tasks.ranks[rank]->on_device(task)});
  }
  return made;
}

class Variants {
 public:
  Variants(std::span<const double> steps_us, std::span<const RankProgram> programs, JobTasks& tasks)
      : steps_us_(steps_us),
        programs_(programs),
        tasks_(tasks),
        paced_(paced_tasks(tasks)),
        durations_us_(tasks.graph.durations_us().begin(), tasks.graph.durations_us().end()),
        squares_(programs.size(), 0) {}

  /// Adds the squared distance of each rank's step from the prediction.
  Result<void> add(const std::vector<std::array<Pace, 2>>& paces, bool high) {
    for (const auto& [task, rank, on_device] : paced_) {
      const double pace = on_device ? paces[rank][high].device : paces[rank][high].host;
      tasks_.graph.set_duration_us(task, pace * durations_us_[task]);
    }
    stop_point();
    PERFMODEL_TRY_TO(run_schedule(tasks_.graph, tasks_.schedule));
    const auto steps = pass_us_per_step(programs_, tasks_);
    for (std::size_t r = 0; r < steps.size(); ++r) {
      squares_[r] += (steps[r] - steps_us_[r]) * (steps[r] - steps_us_[r]);
    }
    return {};
  }

  /// Root of the summed squares since the last call, per rank.
  std::vector<double> distances_us() {
    std::vector<double> made;
    for (double& square : squares_) made.push_back(std::sqrt(std::exchange(square, 0)));
    return made;
  }

  ~Variants() {
    for (std::size_t i = 0; i < durations_us_.size(); ++i) {
      tasks_.graph.set_duration_us(static_cast<TaskId>(i), durations_us_[i]);
    }
  }
  Variants(const Variants&) = delete;
  Variants& operator=(const Variants&) = delete;

 private:
  std::span<const double> steps_us_;
  std::span<const RankProgram> programs_;
  JobTasks& tasks_;
  const std::vector<PacedTask> paced_;
  const std::vector<double> durations_us_;
  std::vector<double> squares_;
};

}  // namespace

Result<std::vector<StepRange>> step_ranges(std::span<const double> steps_us,
                                           std::span<const RankProgram> programs, JobTasks& tasks) {
  std::vector<std::array<Pace, 2>> kernels, hosts;
  for (const RankProgram& rank : programs) {
    kernels.push_back(paces_of_kernels(rank.program));
    hosts.push_back(paces_of_host(rank.program));
  }
  Variants variants(steps_us, programs, tasks);
  std::vector<double> distances_us[2];
  for (const bool high : {false, true}) {
    auto done = variants.add(kernels, high);
    if (done) done = variants.add(hosts, high);
    if (!done) return Unexpected{done.error()};
    distances_us[high] = variants.distances_us();
  }
  std::vector<StepRange> ranges;
  for (std::size_t r = 0; r < steps_us.size(); ++r) {
    ranges.push_back({.low_us = std::max(0.0, steps_us[r] - distances_us[false][r]),
                      .high_us = steps_us[r] + distances_us[true][r]});
  }
  return ranges;
}

}  // namespace perfmodel
