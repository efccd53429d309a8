#include "trace/op_work.hpp"

#include <algorithm>

#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/predictors/detail/lower.hpp"

namespace perfmodel {
namespace {

// Time that the peak of arithmetic and the bandwidth of memory allow for at the least. What crosses
// a link is bound by neither.
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

}  // namespace

OpWorks op_works(const Trace& trace, const Gpu* gpu) {
  OpWorks made(trace.host.size());
  if (trace.arguments.empty() || !gpu) return made;
  const auto built = graph_from_trace(trace);
  if (!built) return made;
  std::vector<double> largest(trace.host.size(), -1);  // bytes of an op's largest kernel
  Lowering lowering(built->graph, *gpu, nullptr);
  LoweredOp op;
  for (const std::int32_t node : top_level_ops(built->graph)) {
    lowering.lower(node, op);
    for (const LoweredCall& call : op.calls) {
      const std::int32_t event = built->event_of_node[static_cast<std::size_t>(call.node)];
      if (call.work < 0 || event < 0) continue;
      const KernelWork& work = op.work[static_cast<std::size_t>(call.work)];
      const auto at = static_cast<std::size_t>(event);
      const std::optional<double> least = least_us(work, *gpu);
      if (!made[at]) made[at] = OpWork{.roofline_us = 0.0};
      OpWork& sum = *made[at];
      sum.flop += work.flop.value;
      sum.bytes += work.bytes().value;
      sum.roofline_us =
          sum.roofline_us && least ? std::optional(*sum.roofline_us + *least) : std::nullopt;
      if (work.bytes().value > largest[at]) {
        largest[at] = work.bytes().value;
        sum.family = work.family;
      }
    }
  }
  return made;
}

}  // namespace perfmodel
