#include "rank_grid.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "task_order.hpp"

namespace perfmodel {

RankGrid::RankGrid(const TaskGraph& one_rank, std::size_t ranks)
    : graph_(one_rank),
      ranks_(ranks),
      start_us_(ranks, 0),
      slowdown_(ranks, 1),
      collective_(one_rank.size(), -1) {}

std::size_t RankGrid::add_communicator(const std::vector<std::int32_t>& group_of_rank) {
  PERFMODEL_CHECK(group_of_rank.size() == ranks_);
  Communicator communicator;
  std::map<std::int32_t, std::int32_t> dense;
  for (std::int32_t group : group_of_rank) {
    communicator.group.push_back(
        dense.try_emplace(group, static_cast<std::int32_t>(dense.size())).first->second);
  }
  communicator.groups = dense.size();
  communicators_.push_back(std::move(communicator));
  return communicators_.size() - 1;
}

void RankGrid::add_collective(TaskGraph::TaskId task, std::size_t communicator) {
  PERFMODEL_CHECK(communicator < communicators_.size());
  collective_[static_cast<std::size_t>(task)] = static_cast<std::int32_t>(communicator);
}

Result<RankTimes> RankGrid::run() const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (auto checked = graph_.check_times(); !checked) return Unexpected{checked.error()};
  const auto order = TaskOrder::find(graph_);
  if (!order) return Unexpected{order.error()};
  for (std::size_t rank = 0; rank < ranks_; ++rank) {
    if (!(slowdown_[rank] >= 0 && slowdown_[rank] < kInfinity) || !std::isfinite(start_us_[rank])) {
      return fail(ErrorCode::kImpossible,
                  "expected a finite start and a slowdown of at least 0, "
                  "found others for rank " +
                      std::to_string(rank));
    }
  }
  std::vector<double> ends(graph_.size() * ranks_);
  RankTimes times{.end_us = start_us_, .waiting_us = std::vector<double>(ranks_, 0)};
  std::vector<double> start(ranks_), last_arrival;
  for (std::size_t position = 0; position < graph_.size(); ++position) {
    const std::size_t i = order->task(position);
    const double duration = graph_.duration_us_[i];
    start = start_us_;
    const auto wait_for = [&](TaskGraph::TaskId task, double lag) {
      const double* from = ends.data() + static_cast<std::size_t>(task) * ranks_;
      for (std::size_t r = 0; r < ranks_; ++r) start[r] = std::max(start[r], from[r] + lag);
    };
    if (graph_.lane_previous_[i] >= 0) wait_for(graph_.lane_previous_[i], graph_.lane_gap_us_[i]);
    for (const auto& edge : order->incoming(i)) wait_for(edge.from, edge.lag_us);
    double* const end = ends.data() + i * ranks_;
    if (collective_[i] < 0) {
      for (std::size_t r = 0; r < ranks_; ++r) end[r] = start[r] + duration * slowdown_[r];
    } else {
      const Communicator& communicator = communicators_[static_cast<std::size_t>(collective_[i])];
      last_arrival.assign(communicator.groups, -kInfinity);
      for (std::size_t r = 0; r < ranks_; ++r) {
        double& last = last_arrival[static_cast<std::size_t>(communicator.group[r])];
        last = std::max(last, start[r]);
      }
      for (std::size_t r = 0; r < ranks_; ++r) {
        const double last = last_arrival[static_cast<std::size_t>(communicator.group[r])];
        times.waiting_us[r] += last - start[r];
        end[r] = last + duration;
      }
    }
    for (std::size_t r = 0; r < ranks_; ++r) times.end_us[r] = std::max(times.end_us[r], end[r]);
  }
  return times;
}

}  // namespace perfmodel
