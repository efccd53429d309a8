#include "rewritten_times.hpp"

namespace perfmodel {

Result<std::string> fit_kernel_times(const ExecutionGraph& from, const ExecutionGraph& to,
                                     PredictOptions& options, KernelTimes& collectives) {
  const bool same_ops = from.nodes.size() == to.nodes.size();
  if (!options.kernel_times || same_ops) return "";
  if (options.use != KernelTimes::Use::kUnpriced) {
    return decline(
        "expected a variant with the same ops, found other ones: times of kernels as traced belong "
        "to the ops of the graph");
  }
  if (options.keeps_recorded_waits()) {
    collectives = collective_times(*options.kernel_times, from, to);
  }
  options.kernel_times = collectives.size() > 0 ? &collectives : nullptr;
  return "kernels of unknown work are left out: times as traced belong to the ops of the trace";
}

}  // namespace perfmodel
