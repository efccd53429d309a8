#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel {

/// Work that a lane takes up at run time.
struct LaneTask {
  double duration_us = 0;
  std::int32_t term = 0;  ///< the policy's own tag, handed back
};

/// Lanes that wait and may go on.
struct LaneWake {
  bool all = false;
  std::vector<std::int32_t> lanes = {};
};

/// Decides at run time what lanes do next, for work whose order no list of tasks can fix in
/// advance: whether a worker may begin its next step depends on the progress of the others. Lanes
/// that depend on each other share state through their policies.
class LanePolicy {
 public:
  virtual ~LanePolicy() = default;

  /// The task that the free lane begins at `now_us`; nothing while it has to wait. A lane that
  /// waits is asked again when `wake()` names it.
  virtual std::optional<LaneTask> next(std::int32_t lane, double now_us) = 0;

  /// The lanes that what happened since the last call may let go on. Asked after every moment at
  /// which a task ended or began.
  virtual LaneWake wake() { return {.all = true}; }

  /// The task of the lane ended. All tasks that end at one moment are reported before any lane is
  /// asked for its next.
  virtual void ended(std::int32_t lane, const LaneTask& task, double now_us) = 0;

  /// Nothing more is wanted of any lane. Asked after each moment.
  virtual bool finished() const = 0;
};

/// A stretch of one lane's work.
struct LaneSpan {
  std::int32_t lane = 0, term = 0;
  double start_us = 0, end_us = 0;
};

struct LaneRun {
  double end_us = 0;                 ///< when the policies had finished, or the limit
  std::vector<LaneSpan> tasks = {};  ///< ended tasks in the order of their ends, where asked for
};

struct LaneLimits {
  /// The run ends here. A task that ends at the limit has ended, one that ends later has not; ends
  /// that differ by rounding (1e-9 of the limit) are the same.
  double until_us = std::numeric_limits<double>::infinity();
  bool keep_tasks = false;
};

/// Runs lane i by policies[i] in time order: the dynamic counterpart of `run_schedule`, in which a
/// lane picks its tasks itself. O(log lanes) per task, one question per lane that became free, and
/// one per waiting lane at moments that may wake it. Errors: a duration that is negative or no
/// finite number; lanes that all wait for each other.
Result<LaneRun> run_lanes(std::span<LanePolicy* const> policies, const LaneLimits& limits = {});

}  // namespace perfmodel
