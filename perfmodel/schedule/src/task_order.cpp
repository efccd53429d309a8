#include "task_order.hpp"

#include <string>

namespace perfmodel {

using TaskId = TaskGraph::TaskId;

Result<TaskOrder> TaskOrder::find(const TaskGraph& graph) {
  TaskOrder found(graph);
  if (!graph.forward_only()) PERFMODEL_TRY_TO(found.sort(graph));
  return found;
}

TaskOrder::TaskOrder(const TaskGraph& graph) : first_(graph.size() + 1, 0) {
  for (const auto& edge : graph.edge_list()) ++first_[static_cast<std::size_t>(edge.to) + 1];
  for (std::size_t i = 0; i < graph.size(); ++i) first_[i + 1] += first_[i];
  incoming_.resize(graph.edges());
  std::vector<std::int32_t> next(first_.begin(), first_.end() - 1);
  for (std::size_t e = 0; e < graph.edges(); ++e) {
    const auto& edge = graph.edge_list()[e];
    incoming_[next[edge.to]++] = {edge.from, static_cast<std::int32_t>(e)};
  }
}

namespace {

// Outgoing edges per task in compressed rows.
struct Outgoing {
  struct Entry {
    TaskId to;
    std::int32_t edge;  // -1: the order of the lane
  };
  std::vector<std::int32_t> first;
  std::vector<Entry> entries;
};

Outgoing outgoing_of(std::span<const TaskGraph::Edge> edges,
                     std::span<const TaskId> lane_previous) {
  const std::size_t count = lane_previous.size();
  Outgoing out;
  out.first.assign(count + 1, 0);
  for (TaskId previous : lane_previous) {
    if (previous >= 0) ++out.first[static_cast<std::size_t>(previous) + 1];
  }
  for (const auto& edge : edges) ++out.first[static_cast<std::size_t>(edge.from) + 1];
  for (std::size_t i = 0; i < count; ++i) out.first[i + 1] += out.first[i];
  out.entries.resize(out.first.back());
  std::vector<std::int32_t> next(out.first.begin(), out.first.end() - 1);
  const auto put = [&](TaskId from, Outgoing::Entry entry) { out.entries[next[from]++] = entry; };
  for (std::size_t i = 0; i < count; ++i) {
    if (lane_previous[i] >= 0) put(lane_previous[i], {static_cast<TaskId>(i), -1});
  }
  for (std::size_t e = 0; e < edges.size(); ++e) {
    put(edges[e].from, {edges[e].to, static_cast<std::int32_t>(e)});
  }
  return out;
}

}  // namespace

// Kahn's algorithm over lane order and edges. If it gets stuck, it breaks a cycle and goes on.
Result<void> TaskOrder::sort(const TaskGraph& graph) {
  const std::size_t count = graph.size();
  const Outgoing outgoing = outgoing_of(graph.edge_list(), graph.lane_previous());
  open_.assign(count, 0);
  order_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    open_[i] = first_[i + 1] - first_[i] + (graph.lane_previous()[i] >= 0 ? 1 : 0);
    if (open_[i] == 0) order_.push_back(static_cast<TaskId>(i));
  }
  for (std::size_t next = 0;;) {
    for (; next < order_.size(); ++next) {
      const auto from = static_cast<std::size_t>(order_[next]);
      for (std::int32_t o = outgoing.first[from]; o < outgoing.first[from + 1]; ++o) {
        const auto [to, edge] = outgoing.entries[o];
        if (edge >= 0 && dropped_ > 0 && is_dropped_[edge]) continue;
        if (--open_[to] == 0) order_.push_back(to);
      }
    }
    if (order_.size() == count) break;
    PERFMODEL_TRY(edges, break_cycle(graph));
    for (std::int32_t e : *edges) {
      is_dropped_[e] = true;
      ++dropped_;
      const TaskId to = graph.edge_list()[e].to;
      if (--open_[to] == 0) order_.push_back(to);
    }
  }
  if (dropped_ > 0) remove_dropped();
  return {};
}

// The inferred edges of one cycle, found by walking back from a stuck task along what it waits for.
// The next search goes on where the walk met this cycle: the tasks before it stay stuck. A cycle of
// certain edges alone cannot be mended, whatever the others are.
Result<std::vector<std::int32_t>> TaskOrder::break_cycle(const TaskGraph& graph) {
  if (placed_.empty()) {
    placed_.assign(graph.size(), false);
    visited_.assign(graph.size(), -1);
    is_inferred_.assign(graph.edges(), false);
    is_dropped_.assign(graph.edges(), false);
    for (std::int32_t e : graph.inferred_edges()) is_inferred_[e] = true;
  }
  for (; marked_ < order_.size(); ++marked_) {
    placed_[order_[marked_]] = true;
  }
  const auto step_back = [&] {
    const TaskId task = walk_.back().task;
    visited_[task] = -1;
    walk_.pop_back();
    return task;
  };
  TaskId at = -1;
  while (!walk_.empty() && (at < 0 || placed_[at])) at = step_back();
  if (at < 0 || placed_[at]) {
    while (placed_[first_stuck_]) ++first_stuck_;
    at = static_cast<TaskId>(first_stuck_);
  }
  while (visited_[at] < 0) {
    visited_[at] = static_cast<std::int32_t>(walk_.size());
    walk_.push_back({at});
    TaskId before = graph.lane_previous()[at];
    if (before >= 0 && placed_[before]) before = -1;
    // Certain edges first: a cycle made of them is an error anyway.
    for (const auto& [from, e] : incoming(static_cast<std::size_t>(at))) {
      const bool waits = !placed_[from] && !is_dropped_[e];
      if (!waits || (before >= 0 && is_inferred_[e])) continue;
      before = from;
      walk_.back().edge = e;
    }
    at = before;
  }
  const auto begin = static_cast<std::size_t>(visited_[at]);
  std::vector<std::int32_t> inferred;
  for (std::size_t i = begin; i < walk_.size(); ++i) {
    const std::int32_t edge = walk_[i].edge;
    if (edge >= 0 && is_inferred_[edge]) inferred.push_back(edge);
  }
  if (!inferred.empty()) {
    while (walk_.size() > begin) step_back();
    return inferred;
  }
  std::string tasks;
  for (std::size_t i = begin; i < walk_.size() && i < begin + 4; ++i) {
    if (!tasks.empty()) tasks += " <- ";
    tasks.append("task ").append(std::to_string(walk_[i].task));
    tasks.append(" (op ").append(std::to_string(graph.op(walk_[i].task))).append(")");
  }
  return decline("expected an acyclic schedule, found a cycle of " +
                 std::to_string(walk_.size() - begin) + " through " + tasks);
}

void TaskOrder::remove_dropped() {
  std::size_t kept = 0;
  std::int32_t begin = 0;
  for (std::size_t i = 0; i + 1 < first_.size(); ++i) {
    const std::int32_t end = first_[i + 1];
    for (std::int32_t at = begin; at < end; ++at) {
      const Incoming& edge = incoming_[at];
      if (!is_dropped_[edge.edge]) incoming_[kept++] = edge;
    }
    begin = end;
    first_[i + 1] = static_cast<std::int32_t>(kept);
  }
  incoming_.resize(kept);
}

}  // namespace perfmodel
