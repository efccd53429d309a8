#include "batch_schedule.hpp"

#include <algorithm>
#include <limits>

#include "perfmodel/detail/schedule.hpp"

namespace perfmodel::sharding {
namespace {

using TaskId = TaskGraph::TaskId;

// One task per part and rank. Lanes: 3 r compute, 3 r + 1 network, 3 r + 2 host link.
class BatchTasks {
 public:
  BatchTasks(const BatchTime& batch, bool pipelined) : batch_(batch), ranks_(batch.ranks.size()) {
    graph_.reserve(ranks_ * (kBatchParts + 1));
    if (!pipelined) {
      collective(BatchPart::kIdExchange, {});
      each(BatchPart::kPrefetch, kLink, {BatchPart::kIdExchange});
      each(BatchPart::kLookupForward, kCompute, {BatchPart::kIdExchange, BatchPart::kPrefetch});
    } else {
      each(BatchPart::kPrefetch, kLink, {});
      each(BatchPart::kLookupForward, kCompute, {});
    }
    collective(BatchPart::kVectorExchange, {BatchPart::kLookupForward});
    if (pipelined) collective(BatchPart::kIdExchange, {});
    each(BatchPart::kBottomForward, kCompute, {});
    each(BatchPart::kTopForward, kCompute, {BatchPart::kVectorExchange});
    each(BatchPart::kTopBackward, kCompute, {});
    collective(BatchPart::kGradientExchange, {BatchPart::kTopBackward});
    each(BatchPart::kBottomBackward, kCompute, {});
    collective(BatchPart::kAllReduce, {BatchPart::kBottomBackward});
    each(BatchPart::kLookupBackward, kCompute, {BatchPart::kGradientExchange});
    each(BatchPart::kDenseOptimizer, kCompute, {BatchPart::kAllReduce});
  }

  Result<void> run(BatchTime& batch) {
    if (auto good = run_schedule(graph_, schedule_); !good) return good;
    batch.predicted_us = schedule_.makespan_us();
    for (std::size_t r = 0; r < ranks_; ++r) {
      batch.ranks[r].waiting_us = 0;
      for (const BatchPart part : {BatchPart::kVectorExchange, BatchPart::kGradientExchange}) {
        batch.ranks[r].waiting_us += waiting_us(part, r);
      }
    }
    find_limits(batch);
    return {};
  }

 private:
  enum Lane : std::int32_t { kCompute, kNetwork, kLink, kLanes };

  static std::int32_t lane(std::size_t rank, Lane lane) {
    return static_cast<std::int32_t>(rank) * kLanes + lane;
  }
  TaskId& task(BatchPart part, std::size_t rank) {
    std::vector<TaskId>& tasks = tasks_[static_cast<std::size_t>(part)];
    if (tasks.empty()) tasks.resize(ranks_, -1);
    return tasks[rank];
  }

  TaskId add(BatchPart part, std::size_t rank, Lane lane_of) {
    return graph_.add_task(lane(rank, lane_of), batch_.ranks[rank].parts[part], 0,
                           static_cast<std::int32_t>(rank), static_cast<std::int32_t>(part));
  }
  void each(BatchPart part, Lane lane_of, std::initializer_list<BatchPart> after) {
    for (std::size_t r = 0; r < ranks_; ++r) {
      const TaskId added = add(part, r, lane_of);
      for (BatchPart before : after) graph_.add_edge(task(before, r), added);
      task(part, r) = added;
    }
  }
  // Begins when the last rank has come.
  void collective(BatchPart part, std::initializer_list<BatchPart> after) {
    const TaskId meeting = graph_.add_task(TaskGraph::kNoLane, 0);
    for (std::size_t r = 0; r < ranks_; ++r) {
      graph_.add_edge(graph_.last_on_lane(lane(r, kNetwork)), meeting);
      for (BatchPart before : after) graph_.add_edge(task(before, r), meeting);
    }
    for (std::size_t r = 0; r < ranks_; ++r) {
      const TaskId added = add(part, r, kNetwork);
      graph_.add_edge(meeting, added);
      task(part, r) = added;
    }
  }

  double waiting_us(BatchPart part, std::size_t rank) {
    const BatchPart before =
        part == BatchPart::kVectorExchange ? BatchPart::kLookupForward : BatchPart::kTopBackward;
    const double ready = schedule_.end_us[static_cast<std::size_t>(task(before, rank))];
    return std::max(0.0, schedule_.start_us[static_cast<std::size_t>(task(part, rank))] - ready);
  }

  // The critical path names the parts that add up to the whole, and the rank that it runs through
  // where ranks differ.
  void find_limits(BatchTime& batch) {
    batch.critical = {};
    const auto last =
        static_cast<TaskId>(std::max_element(schedule_.end_us.begin(), schedule_.end_us.end()) -
                            schedule_.end_us.begin());
    std::vector<double> lookups_us(ranks_, 0.0);
    for (const TaskId id : schedule_.critical_path(last)) {
      if (graph_.op(id) < 0) continue;  // a meeting
      const auto part = static_cast<BatchPart>(graph_.term(id));
      batch.critical[part] += graph_.duration_us(id);
      if (part == BatchPart::kLookupForward || part == BatchPart::kLookupBackward) {
        lookups_us[static_cast<std::size_t>(graph_.op(id))] += graph_.duration_us(id);
      }
    }
    batch.limiting_rank = static_cast<std::size_t>(
        std::max_element(lookups_us.begin(), lookups_us.end()) - lookups_us.begin());
  }

  const BatchTime& batch_;
  const std::size_t ranks_;
  TaskGraph graph_;
  Schedule schedule_;
  std::array<std::vector<TaskId>, kBatchParts> tasks_;
};

}  // namespace

Result<void> schedule_batch(BatchTime& batch, bool pipelined) {
  if (batch.ranks.empty()) return {};
  return BatchTasks(batch, pipelined).run(batch);
}

}  // namespace perfmodel::sharding
