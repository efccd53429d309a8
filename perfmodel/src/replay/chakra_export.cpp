#include "chakra_export.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

void add_unique(std::vector<std::uint64_t>& list, std::uint64_t id) {
  if (std::find(list.begin(), list.end(), id) == list.end()) list.push_back(id);
}

double first_start(const std::vector<ChakraTrace>& traces) {
  double first = std::numeric_limits<double>::infinity();
  for (const ChakraTrace& trace : traces) {
    for (const ChakraNode& node : trace.nodes) first = std::min(first, node.start_us);
  }
  return first;
}

// A rank that begins later than the first one begins with a host node of that length. If it only
// waits for a message, the node only tells when the step began.
void add_start(ChakraTrace& trace, double base_us, std::uint64_t id) {
  if (trace.nodes.empty()) return;
  double first_us = std::numeric_limits<double>::infinity();
  for (const ChakraNode& node : trace.nodes) {
    if (node.is_cpu_op) first_us = std::min(first_us, node.start_us);
  }
  const double late_us = first_us - base_us;
  if (!(late_us >= 1 && late_us < std::numeric_limits<double>::infinity())) return;
  bool delays = false;
  for (ChakraNode& node : trace.nodes) {
    if (!node.is_cpu_op || !node.data_deps.empty()) continue;
    node.data_deps.push_back(id);
    delays = true;
  }
  trace.nodes.insert(trace.nodes.begin(), {.id = id,
                                           .name = "start of the rank",
                                           .type = ChakraNodeType::kCompute,
                                           .start_us = base_us,
                                           .duration_us = delays ? late_us : 0,
                                           .is_cpu_op = true});
}

}  // namespace

std::vector<ChakraTrace> chakra_traces(
    const TaskGraph& graph, const Schedule& schedule, std::pair<TaskId, TaskId> range,
    std::size_t ranks, const std::function<std::optional<ChakraTask>(TaskId)>& describe) {
  const auto count = static_cast<std::size_t>(range.second - range.first);
  const auto local = [&](TaskId task) { return static_cast<std::size_t>(task - range.first); };
  const auto inside = [&](TaskId task) { return task >= range.first && task < range.second; };

  std::vector<std::vector<TaskId>> predecessors(count);
  for (const TaskGraph::Edge& edge : graph.edge_list()) {
    if (inside(edge.from) && inside(edge.to)) predecessors[local(edge.to)].push_back(edge.from);
  }
  std::vector<TaskId> order(count);
  std::iota(order.begin(), order.end(), range.first);
  // Ends, too: of tasks without duration at one moment, the awaited one was placed first.
  const auto start = [&](TaskId t) { return schedule.start_us[static_cast<std::size_t>(t)]; };
  const auto end = [&](TaskId t) { return schedule.end_us[static_cast<std::size_t>(t)]; };
  std::stable_sort(order.begin(), order.end(), [&](TaskId a, TaskId b) {
    return std::pair(start(a), end(a)) < std::pair(start(b), end(b));
  });

  struct Placed {
    std::size_t rank = 0;
    std::vector<std::uint64_t> nodes;  // a successor waits for them: itself, or its predecessors
    bool done = false;
  };
  std::vector<Placed> placed(count);
  std::vector<ChakraTrace> traces(ranks);
  for (TaskId task : order) {
    Placed& at = placed[local(task)];
    at.done = true;
    const auto described = describe(task);
    if (described) at.rank = described->rank;
    std::vector<std::uint64_t> lane, reasons;
    const auto collect = [&](TaskId from, std::vector<std::uint64_t>& into) {
      const Placed& before = placed[local(from)];
      // A negative lag may place a task before one that it depends on: the format cannot say that.
      if (!before.done || !described || before.rank != at.rank) return;
      for (std::uint64_t node : before.nodes) add_unique(into, node);
    };
    if (const TaskId previous = graph.lane_previous(task); inside(previous)) {
      collect(previous, lane);
    }
    reasons = lane;
    for (TaskId from : predecessors[local(task)]) collect(from, reasons);
    if (!described) continue;
    if (graph.duration_us(task) <= 0 && !described->collective && !described->transfer) {
      at.nodes = std::move(reasons);
      continue;
    }
    // The device's pause between two tasks of a stream counts to the latter. The simulator decides
    // how long a collective takes.
    const bool paused = !described->on_host && !described->collective && !lane.empty();
    const double pause = paused ? graph.lane_gap_us(task) : 0;
    ChakraNode node{.id = static_cast<std::uint64_t>(local(task)) + 1,
                    .name = described->name,
                    .type = ChakraNodeType::kCompute,
                    .ctrl_deps = std::move(lane),
                    .data_deps = std::move(reasons),
                    .start_us = start(task) - pause,
                    .duration_us = graph.duration_us(task) + pause,
                    .is_cpu_op = described->on_host};
    if (described->collective) {
      node.type = ChakraNodeType::kCollective;
      node.comm_type = described->collective;
      node.comm_size =
          chakra_comm_size(*described->collective, described->comm_bytes, described->group_size);
      node.pg_name = described->process_group;
    }
    if (described->transfer) {
      const ChakraTransfer& transfer = *described->transfer;
      node.type = transfer.receives ? ChakraNodeType::kReceive : ChakraNodeType::kSend;
      node.comm_size = described->comm_bytes;
      node.comm_src = transfer.from;
      node.comm_dst = transfer.to;
      node.comm_tag = transfer.tag;
    }
    at.nodes = {node.id};
    traces[at.rank].nodes.push_back(std::move(node));
  }
  const double base_us = first_start(traces);
  for (ChakraTrace& trace : traces) add_start(trace, base_us, count + 1);
  return traces;
}

std::optional<ChakraCollective> chakra_collective(std::string_view kind) {
  constexpr std::pair<std::string_view, ChakraCollective> kKinds[] = {
      {"all_reduce", ChakraCollective::kAllReduce},
      {"all_gather", ChakraCollective::kAllGather},
      {"reduce_scatter", ChakraCollective::kReduceScatter},
      {"all_to_all", ChakraCollective::kAllToAll},
      {"broadcast", ChakraCollective::kBroadcast},
      {"reduce", ChakraCollective::kReduce},
      {"gather", ChakraCollective::kGather},
      {"scatter", ChakraCollective::kScatter}};
  for (const auto& [name, collective] : kKinds) {
    if (name == kind) return collective;
  }
  return {};
}

}  // namespace perfmodel
