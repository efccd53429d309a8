#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "analyze/step_facts.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "replay/replay_tasks.hpp"
#include "task_order.hpp"

namespace perfmodel::findings {

/// The steps of one trace, and the schedule of their tasks (as `replay` makes it).
class TraceStep final : public Rescheduler {
 public:
  /// `window`: iterations [first, last); empty: all, or the whole trace if it marks none. `trace`
  /// must outlive it. Errors: no ops, fewer iterations, errors of run_schedule.
  static Result<std::unique_ptr<TraceStep>> create(
      const Trace& trace, const Gpu* gpu,
      const std::optional<std::pair<std::size_t, std::size_t>>& window);

  const StepFacts& facts() const { return facts_; }
  /// From the begin of the first step until host and device had finished the last, over the number.
  double measured_us() const { return measured_us_; }
  Result<double> step_us(const Repair& repair) const override;
  Result<std::vector<PathPiece>> critical_path() const override;

 private:
  using TaskId = TaskGraph::TaskId;
  explicit TraceStep(const Trace& trace) : trace_(trace) {}
  Result<void> find_window(const std::optional<std::pair<std::size_t, std::size_t>>& window);
  Result<void> make_tasks();
  void find_ops();
  void find_calls();
  void find_kernels(const Gpu* gpu);
  void find_gaps();
  void find_memory(const Gpu* gpu);
  std::int32_t innermost_op(std::int32_t thread, double at_us) const;  // -1: none
  bool in_window(std::int64_t ns) const { return ns >= begin_ns_ && ns < end_ns_; }
  double since_begin(std::int64_t ns) const { return static_cast<double>(ns - begin_ns_) / 1e3; }

  const Trace& trace_;
  StepFacts facts_;
  std::int64_t begin_ns_ = 0, end_ns_ = 0;
  double measured_us_ = 0;
  TaskId begin_ = -1, end_ = -1;
  TaskGraph graph_;
  std::optional<TaskOrder> order_;  // holds for repaired graphs, too
  ReplayTasks tasks_;
  std::vector<std::int32_t> op_of_event_;         // per host event, into facts_.ops
  std::vector<std::vector<TaskId>> tasks_of_op_;  // per op
  std::vector<std::size_t> event_of_kernel_;      // per kernel, into Trace::gpu
  std::vector<std::size_t> event_of_wait_;        // per wait, into Trace::host
  std::vector<std::size_t> event_of_allocation_;  // per allocator call, into Trace::host
  std::vector<TaskId> task_of_gap_;               // per gap
  std::vector<std::pair<TaskId, std::int32_t>> waiting_edges_;  // host task, edge; sorted
};

}  // namespace perfmodel::findings
