#include "perfmodel/detail/lane_policy.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <string>
#include <utility>

namespace perfmodel {
namespace {

struct LaneEnd {
  double us = 0;
  std::int32_t lane = 0;
  // The earliest first; of equal ones the first lane.
  bool operator<(const LaneEnd& other) const {
    return us != other.us ? us > other.us : lane > other.lane;
  }
};

class LaneRunner {
 public:
  LaneRunner(std::span<LanePolicy* const> policies, const LaneLimits& limits)
      : policies_(policies),
        distinct_(policies.begin(), policies.end()),
        limits_(limits),
        running_(policies.size()),
        free_(policies.size()),
        waits_(policies.size(), false) {
    std::ranges::sort(distinct_);
    distinct_.erase(std::unique(distinct_.begin(), distinct_.end()), distinct_.end());
    std::iota(free_.begin(), free_.end(), 0);
  }

  Result<LaneRun> run() {
    const double last_us =
        std::isfinite(limits_.until_us) ? limits_.until_us * (1 + 1e-9) : limits_.until_us;
    double now = 0;
    while (!finished()) {
      PERFMODEL_TRY_TO(start_free_lanes(now));
      if (ends_.empty()) {
        // Time passes for lanes that wait, up to a limit that has an end.
        if (std::isfinite(limits_.until_us)) break;
        return decline("expected a lane that can go on, found all " +
                       std::to_string(policies_.size()) + " waiting for each other at " +
                       std::to_string(now) + " us");
      }
      if (ends_.top().us > last_us) break;
      now = ends_.top().us;
      end_tasks(now);
    }
    run_.end_us = finished() ? now : limits_.until_us;
    return std::move(run_);
  }

 private:
  struct Running {
    LaneTask task;
    double start_us = 0;
  };

  bool finished() const {
    return std::ranges::all_of(distinct_,
                               [](const LanePolicy* policy) { return policy->finished(); });
  }

  void wake() {
    for (LanePolicy* policy : distinct_) {
      const LaneWake woken = policy->wake();
      for (const std::int32_t lane : woken.lanes) wake(lane);
      if (!woken.all) continue;
      for (std::size_t lane = 0; lane < waits_.size(); ++lane)
        wake(static_cast<std::int32_t>(lane));
    }
  }
  void wake(std::int32_t lane) {
    if (!waits_[lane]) return;
    waits_[lane] = false;
    free_.push_back(lane);
  }

  // A task that one lane begins may free another lane (a server that takes a request).
  Result<void> start_free_lanes(double now) {
    do {
      wake();
      std::ranges::sort(free_);
      began_ = false;
      for (const std::int32_t lane : std::exchange(free_, {})) PERFMODEL_TRY_TO(ask(lane, now));
    } while (began_);
    return {};
  }

  Result<void> ask(std::int32_t lane, double now) {
    const auto task = policies_[lane]->next(lane, now);
    waits_[lane] = !task;
    if (!task) return {};
    if (!(task->duration_us >= 0) || !std::isfinite(task->duration_us)) {
      return decline("expected a finite duration of at least 0 us, found " +
                     std::to_string(task->duration_us) + " on lane " + std::to_string(lane));
    }
    running_[lane] = {*task, now};
    ends_.push({now + task->duration_us, lane});
    began_ = true;
    return {};
  }

  void end_tasks(double now) {
    while (!ends_.empty() && ends_.top().us == now) {
      const std::int32_t lane = ends_.top().lane;
      ends_.pop();
      const Running& ran = running_[lane];
      policies_[lane]->ended(lane, ran.task, now);
      if (limits_.keep_tasks) run_.tasks.push_back({lane, ran.task.term, ran.start_us, now});
      free_.push_back(lane);
    }
  }

  std::span<LanePolicy* const> policies_;
  std::vector<LanePolicy*> distinct_;
  const LaneLimits& limits_;
  std::vector<Running> running_;
  std::vector<std::int32_t> free_;  // to be asked
  std::vector<bool> waits_;         // asked, and left without a task
  bool began_ = false;
  std::priority_queue<LaneEnd> ends_;
  LaneRun run_;
};

}  // namespace

Result<LaneRun> run_lanes(std::span<LanePolicy* const> policies, const LaneLimits& limits) {
  return LaneRunner(policies, limits).run();
}

}  // namespace perfmodel
