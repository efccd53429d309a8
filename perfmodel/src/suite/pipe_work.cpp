#include "pipe_work.hpp"

#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel::suite {

PipeWork pipe_work(const ExecutionGraph& graph, const Gpu& gpu) {
  PipeWork sum;
  Lowering lowering(graph, gpu, nullptr);
  LoweredOp op;
  for (std::int32_t node : top_level_ops(graph)) {
    lowering.lower(node, op);
    for (const LoweredCall& call : op.calls) {
      if (call.work < 0) continue;
      const KernelWork& work = op.work[call.work];
      const double peak = gpu.peak(work.dtype, work.matrix_units).value;
      if (peak <= 0) continue;
      if (work.matrix_units) {
        sum.matrix_s += work.flop.value / peak;
      } else if (work.dtype == DType::kFloat32) {
        sum.fp32_s += work.flop.value / peak;
      }
    }
  }
  return sum;
}

}  // namespace perfmodel::suite
