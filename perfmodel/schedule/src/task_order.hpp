#pragma once

#include <span>
#include <vector>

#include "perfmodel/detail/task_graph.hpp"

namespace perfmodel {

/// Incoming edges per task, and an order in which every task comes after what it waits for.
class TaskOrder {
 public:
  /// A cycle loses its inferred edges; one without any is an error that names its tasks.
  static Result<TaskOrder> find(const TaskGraph& graph);

  std::size_t task(std::size_t position) const {
    return order_.empty() ? position : static_cast<std::size_t>(order_[position]);
  }
  /// By target, so that a pass over the tasks reads them front to back.
  struct Incoming {
    TaskGraph::TaskId from = -1;
    std::int32_t edge = -1;  // position in the graph's list, which has its lag
  };
  std::span<const Incoming> incoming(std::size_t task) const {
    return {incoming_.data() + first_[task], incoming_.data() + first_[task + 1]};
  }
  std::size_t dropped() const { return dropped_; }

 private:
  explicit TaskOrder(const TaskGraph& graph);
  Result<void> sort(const TaskGraph& graph);
  Result<std::vector<std::int32_t>> break_cycle(const TaskGraph& graph);
  void remove_dropped();

  std::vector<std::int32_t> first_;  // compressed rows
  std::vector<Incoming> incoming_;
  std::vector<TaskGraph::TaskId> order_;  // empty: the order of addition
  std::size_t dropped_ = 0;
  // Used by the sort alone.
  struct Step {
    TaskGraph::TaskId task = -1;
    std::int32_t edge = -1;  // by which the walk leaves it backwards; -1: the order of its lane
  };
  std::vector<Step> walk_;
  std::vector<std::int32_t> open_, visited_;
  std::vector<bool> is_inferred_, is_dropped_, placed_;
  std::size_t marked_ = 0, first_stuck_ = 0;
};

}  // namespace perfmodel
