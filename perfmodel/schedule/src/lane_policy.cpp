#include "perfmodel/detail/lane_policy.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <string>

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
      : policies_(policies), limits_(limits), running_(policies.size()) {
    for (std::size_t lane = 0; lane < policies.size(); ++lane) {
      free_.push_back(static_cast<std::int32_t>(lane));
    }
  }

  Result<LaneRun> run() {
    const double last_us =
        std::isfinite(limits_.until_us) ? limits_.until_us * (1 + 1e-9) : limits_.until_us;
    double now = 0;
    while (!finished()) {
      if (auto started = start_free_lanes(now); !started) return Unexpected{started.error()};
      if (ends_.empty()) {
        // Time passes for lanes that wait, up to a limit that has an end.
        if (std::isfinite(limits_.until_us)) break;
        return fail(ErrorCode::kImpossible, "expected a lane that can go on, found all " +
                                                std::to_string(policies_.size()) +
                                                " waiting for each other at " +
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
    return std::ranges::all_of(policies_,
                               [](const LanePolicy* policy) { return policy->finished(); });
  }

  // A task that one lane begins may free another lane (a server that takes a request).
  Result<void> start_free_lanes(double now) {
    for (bool any = true; any;) {
      any = false;
      std::size_t kept = 0;
      for (std::size_t i = 0; i < free_.size(); ++i) {
        const std::int32_t lane = free_[i];
        const auto task = policies_[lane]->next(lane, now);
        if (!task) {
          free_[kept++] = lane;
          continue;
        }
        if (!(task->duration_us >= 0) || !std::isfinite(task->duration_us)) {
          return fail(ErrorCode::kImpossible,
                      "expected a finite duration of at least 0 us, found " +
                          std::to_string(task->duration_us) + " on lane " + std::to_string(lane));
        }
        running_[lane] = {*task, now};
        ends_.push({now + task->duration_us, lane});
        any = true;
      }
      free_.resize(kept);
    }
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
    std::ranges::sort(free_);
  }

  std::span<LanePolicy* const> policies_;
  const LaneLimits& limits_;
  std::vector<Running> running_;
  std::vector<std::int32_t> free_;  // in the order of lanes
  std::priority_queue<LaneEnd> ends_;
  LaneRun run_;
};

}  // namespace

Result<LaneRun> run_lanes(std::span<LanePolicy* const> policies, const LaneLimits& limits) {
  return LaneRunner(policies, limits).run();
}

}  // namespace perfmodel
