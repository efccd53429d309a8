#include <algorithm>
#include <numeric>
#include <utility>

#include "perfmodel/memory.hpp"
#include "step_memory.hpp"

namespace perfmodel {
namespace {

/// The outermost op around a node, itself included; -1: none.
std::int32_t top_level_op(const ExecutionGraph& graph, std::int32_t node) {
  std::int32_t op = -1;
  for (std::int32_t at = node; at >= 0; at = graph.node(at).parent) {
    const Node& here = graph.node(at);
    if (!here.is_label && !here.is_structural) op = at;
  }
  return op;
}

LargeStorage describe(const ExecutionGraph& graph, const StorageLifetime& storage,
                      std::int64_t bytes) {
  const Tensor& tensor = graph.tensors[storage.tensor];
  const auto shape = graph.shape(tensor);
  LargeStorage made{.bytes = static_cast<double>(bytes),
                    .purpose = storage.purpose,
                    .made_by = {},
                    .shape = {shape.begin(), shape.end()},
                    .dtype = tensor.dtype};
  if (const std::int32_t op = top_level_op(graph, storage.made_by); op >= 0) {
    const Node& node = graph.node(op);
    made.made_by = graph.name(node);
    made.node = node.id;
  }
  return made;
}

std::vector<LargeStorage> largest_at(const MemoryPlan& plan, const ExecutionGraph& graph,
                                     const std::vector<std::int64_t>& bytes, std::int32_t node,
                                     std::size_t count) {
  std::vector<std::int32_t> alive = alive_at(plan, node);
  count = std::min(count, alive.size());
  const auto larger = [&](std::int32_t a, std::int32_t b) {
    const std::int64_t of_a = bytes[a];
    const std::int64_t of_b = bytes[b];
    return of_a != of_b ? of_a > of_b : a < b;
  };
  std::ranges::partial_sort(alive, alive.begin() + static_cast<std::ptrdiff_t>(count), larger);
  std::vector<LargeStorage> largest;
  for (std::int32_t storage : std::span(alive).first(count)) {
    largest.push_back(describe(graph, plan.lifetimes.storages[storage], bytes[storage]));
  }
  return largest;
}

std::vector<MemoryPoint> curve_of(const MemoryPlan& plan, const std::vector<std::int64_t>& bytes) {
  const std::vector<MemoryByPurpose> values = memory_curve(plan, bytes);
  std::vector<MemoryPoint> curve;
  for (std::size_t i = 0; i < values.size(); ++i) {
    // One point before an op runs and one after it.
    const bool is_last = i + 1 == values.size() || plan.events[i + 1].node != plan.events[i].node ||
                         plan.events[i + 1].is_free != plan.events[i].is_free;
    if (is_last) curve.push_back({.node = plan.events[i].node, .bytes = values[i]});
  }
  return curve;
}

// Adds workspaces of libraries and gathered tensors of a rank, which no op of the graph allocates.
void add_held_throughout(const MemoryByPurpose& step, const MemoryByPurpose& graph,
                         std::vector<MemoryPoint>& curve) {
  for (const MemoryPurpose purpose : {MemoryPurpose::kWorkspace, MemoryPurpose::kCommunication}) {
    const double held = at(step, purpose) - at(graph, purpose);
    for (MemoryPoint& point : curve) at(point.bytes, purpose) += held;
  }
}

}  // namespace

MemoryReport memory_report(const ExecutionGraph& graph, const Gpu* gpu,
                           const MemoryOptions& options) {
  const MemoryPlan plan = memory_plan(graph);
  const RankShare share = rank_share(options.zero, plan, graph);
  const std::vector<std::int64_t> bytes = rank_bytes(plan, graph, share);
  const GraphMemory made = graph_memory(plan, bytes);
  MemoryReport report{.memory = step_memory(plan, graph, share, gpu, options.expandable_segments),
                      .each_peak = made.each_peak,
                      .without_sizes = plan.lifetimes.without_sizes};
  at(report.each_peak, MemoryPurpose::kCommunication) += share.gathered_bytes;
  report.activations = static_cast<std::size_t>(
      std::ranges::count_if(plan.lifetimes.storages, [](const StorageLifetime& storage) {
        return storage.purpose == MemoryPurpose::kActivations && storage.bytes > 0;
      }));
  if (const std::int32_t op = top_level_op(graph, made.peak_node); op >= 0) {
    const Node& node = graph.node(op);
    report.peak_op = graph.name(node);
    report.peak_node = node.id;
  }
  report.largest = largest_at(plan, graph, bytes, made.peak_node, options.largest);
  if (options.curve) {
    report.curve = curve_of(plan, bytes);
    add_held_throughout(report.memory.by_purpose, made.at_peak, report.curve);
  }
  return report;
}

}  // namespace perfmodel
