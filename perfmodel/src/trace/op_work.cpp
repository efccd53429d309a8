#include "trace/op_work.hpp"

#include <algorithm>

#include "perfmodel/graph/detail/op_kinds.hpp"
#include "perfmodel/predictors/detail/lower.hpp"

namespace perfmodel {

std::optional<double> least_us(const KernelWork& work, const Gpu& gpu) {
  if (work.family == KernelFamily::kCollective) return std::nullopt;
  if (const auto* copy = std::get_if<CopyShape>(&work.shape);
      copy && copy->kind != CopyKind::kDeviceToDevice) {
    return std::nullopt;
  }
  const double compute = work.flop.value > 0
                             ? work.flop.value / gpu.peak(work.dtype, work.matrix_units).value * 1e6
                             : 0;
  return std::max(compute, work.bytes().value / gpu.dram_bandwidth.value * 1e6);
}

OpWorks op_works(const Trace& trace, const Gpu* gpu) {
  OpWorks made;
  if (trace.arguments.empty() || !gpu) return made;
  const auto kinds = op_kinds_of_trace(trace);
  if (!kinds) return made;
  const ExecutionGraph& graph = kinds->graph;
  std::vector<std::int32_t>& entry = made.entry;
  entry.assign(trace.host.size(), -1);
  std::vector<double> largest;  // bytes of an op's largest kernel
  Lowering lowering(graph, *gpu, nullptr);
  LoweredOp op;
  for (const std::int32_t node : top_level_ops(graph)) {
    lowering.lower(node, op);
    for (const LoweredCall& call : op.calls) {
      const std::int32_t event = kinds->event_of_node[call.node];
      if (call.work < 0 || event < 0) continue;
      const KernelWork& work = op.work[call.work];
      std::int32_t& own = entry[event];
      if (own < 0) {
        own = static_cast<std::int32_t>(made.works.size());
        made.works.push_back({.roofline_us = 0.0});
        largest.push_back(-1);
      }
      const std::optional<double> least = least_us(work, *gpu);
      OpWork& sum = made.works[own];
      sum.flop += work.flop.value;
      sum.bytes += work.bytes().value;
      sum.roofline_us =
          sum.roofline_us && least ? std::optional(*sum.roofline_us + *least) : std::nullopt;
      if (work.bytes().value > largest[own]) {
        largest[own] = work.bytes().value;
        sum.family = work.family;
        sum.largest = work;
      }
    }
  }
  for (std::size_t i = 0; i < entry.size(); ++i) {
    const std::int32_t like = kinds->like[i];
    entry[i] = like < 0 ? -1 : entry[like];
  }
  return made;
}

}  // namespace perfmodel
