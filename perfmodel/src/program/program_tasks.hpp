#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "host_program.hpp"
#include "perfmodel/detail/schedule.hpp"

namespace perfmodel {

/// By how much the periods of passes in steady state may differ, of the period.
inline constexpr double kSteadyTolerance = 1e-3;

/// Turns one rank's program into tasks of a (shared) graph, pass by pass.
///
/// Lanes `first_lane` ... + kStreamLanes - 1 are streams, the following ones host threads. Task
/// tags: position in the program's items; Term and, for kernels, their family (see term_of).
class ProgramTasks {
 public:
  using TaskId = TaskGraph::TaskId;
  static constexpr std::int32_t kStreamLanes = 64;

  ProgramTasks(const HostProgram& program, const OverheadTable& table, std::int32_t first_lane,
               TaskGraph& graph);

  /// A task of the last pass and the instruction that it comes from. `arrival`: of a
  /// collective that meets others, the task that ends when this rank is there; else the task.
  struct Placed {
    TaskId task, arrival;
    std::int32_t instruction;
  };
  struct Arrival {
    std::int32_t meeting;
    TaskId arrival, transfer;
  };

  /// Adds a pass; its first host task waits for `starter` plus `lag_us` (-1: for nothing).
  void add_pass(TaskId starter = -1, double lag_us = 0);

  /// The next pass has the same tasks and edges as the last one.
  bool repeats() const { return repeats_; }
  /// Takes over tasks of the graph that repeat the last pass, as many tasks `later`.
  void repeat(TaskId later);
  /// Gives the device tasks of all passes, which are so many tasks apart, the times that the
  /// program has now. False if another stream is the busiest now: the tasks are of no use then.
  bool retime(TaskId apart);

  bool on_device(TaskId task) const {
    const std::int32_t lane = graph_.lane(task) - first_lane_;
    return lane >= 0 && lane < kStreamLanes;
  }
  bool on_host(TaskId task) const {
    const std::int32_t lane = graph_.lane(task) - first_lane_;
    return lane >= kStreamLanes && lane < kStreamLanes + static_cast<std::int32_t>(threads_);
  }
  /// Role of the stream of a device task.
  std::int32_t stream_of(TaskId task) const { return graph_.lane(task) - first_lane_; }
  static Term term_of(std::int32_t tag) { return static_cast<Term>(tag & kTermMask); }
  /// None of host tasks, copies, sets and collectives.
  static std::optional<KernelFamily> family_of(std::int32_t tag) {
    const std::int32_t family = tag >> kFamilyShift;
    return family == 0 ? std::nullopt : std::optional(static_cast<KernelFamily>(family - 1));
  }

  std::int32_t end_lane() const {
    return first_lane_ + kStreamLanes + static_cast<std::int32_t>(threads_);
  }

  const std::vector<Placed>& last_pass() const { return last_pass_; }
  const std::vector<Arrival>& arrivals() const { return arrivals_; }  ///< in the last pass
  /// Last host task per pass, and per iteration of the last pass.
  const std::vector<TaskId>& pass_ends() const { return pass_ends_; }
  const std::vector<TaskId>& pass_begins() const { return pass_begins_; }  ///< first host task
  const std::vector<TaskId>& iteration_ends() const { return iteration_ends_; }
  /// Per pass: last task on the stream that works longest; it limits the pace if the device does.
  const std::vector<TaskId>& pass_device_ends() const { return pass_device_ends_; }

 private:
  static constexpr std::int32_t kFamilyShift = 8, kTermMask = (1 << kFamilyShift) - 1;

  // An instruction with its position in the program.
  struct Placing {
    const Instruction& at;
    std::int32_t position;
  };

  std::int32_t host_lane(std::int32_t thread);
  std::int32_t stream_lane(std::int32_t role) const;
  std::int32_t& last_stream(std::int32_t thread);
  void find_busiest_stream();
  std::map<std::int32_t, std::int64_t> sequences_per_pass() const;
  TaskId awaited_task(const DeviceWait& wait) const;
  std::int32_t device_tag(const Launch& launch) const;
  void await_streams(const Launch& launch, std::int32_t thread, TaskId begin);
  TaskId add_host(const Placing& from, double us, Term term);
  TaskId add_device(const Placing& from, const Launch& launch);

  void add(const Placing& from, const HostWork& work);
  void add(const Placing& from, const Launch& launch);
  void add(const Placing& from, const Synchronisation& sync);
  void add(const Placing& from, const DeviceWait& wait);
  void add(const Placing& from, const StreamMark& mark);

  const HostProgram& program_;
  const OverheadTable& table_;
  const std::int32_t first_lane_;
  TaskGraph& graph_;
  std::size_t threads_ = 0;
  std::map<std::int32_t, std::int32_t> host_lanes_;
  std::int32_t thread_at_hand_ = -1, lane_at_hand_ = -1;  // long runs of one thread are the rule
  std::map<std::int32_t, std::int32_t> last_stream_;      // per thread
  // By process group and sequence number, and by the number alone: old records of waits do not name
  // their group.
  using ByNumber = std::map<std::pair<std::int32_t, std::int64_t>, TaskId>;
  ByNumber collectives_, earlier_;
  std::map<std::int32_t, TaskId> of_records_;  // collectives by their record's node
  struct Awaited {
    TaskId task = -1;
    double lag_us = 0;
  };
  std::vector<Awaited> awaited_;          // by the next kernel
  std::map<std::int32_t, TaskId> marks_;  // marks in this pass
  TaskId last_host_ = -1, busiest_task_ = -1;
  std::int32_t busiest_lane_ = -1;
  bool repeats_ = false;                            // the next pass repeats the last one
  std::map<std::int32_t, std::int64_t> sequences_;  // per group; -1: of all
  std::vector<Placed> last_pass_;
  std::vector<Arrival> arrivals_;
  std::vector<TaskId> pass_ends_, pass_begins_, iteration_ends_, pass_device_ends_;
};

}  // namespace perfmodel
