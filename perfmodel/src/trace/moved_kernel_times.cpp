#include "trace/moved_kernel_times.hpp"

#include <unordered_map>

#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {
namespace {

// What a kernel's time is multiplied with from one GPU to another.
double time_ratio(KernelFamily family, const Gpu& from, const Gpu& to) {
  switch (family) {
    case KernelFamily::kCollective:
      return 1;
    case KernelFamily::kGemm:
    case KernelFamily::kConvolution:
      return from.peak(DType::kFloat32, false).value / to.peak(DType::kFloat32, false).value;
    case KernelFamily::kCopy:
      return from.pcie_bandwidth.value / to.pcie_bandwidth.value;
    default:
      return from.dram_bandwidth.value / to.dram_bandwidth.value;
  }
}

Trace scaled(Trace trace, const Gpu& from, const Gpu& to) {
  std::unordered_map<NameId, double> ratios;
  for (GpuEvent& event : trace.gpu) {
    const auto [at, added] = ratios.try_emplace(event.name, 1);
    if (added) {
      const std::string_view name = trace.name(event);
      const bool within = event.kind == GpuKind::kSet || name.find("DtoD") != name.npos;
      const KernelFamily family = event.kind == GpuKind::kCopy && !within ? KernelFamily::kCopy
                                  : is_collective_kernel(name)
                                      ? KernelFamily::kCollective
                                      : kernel_family_of_name(name).value_or(KernelFamily::kSmall);
      at->second = time_ratio(family, from, to);
    }
    event.duration_ns =
        static_cast<std::int64_t>(static_cast<double>(event.duration_ns) * at->second);
  }
  return trace;
}

}  // namespace

Result<MovedKernelTimes> kernel_times_on(
    const ExecutionGraph& graph, const Trace& trace, const Gpu& gpu,
    const std::optional<std::pair<std::size_t, std::size_t>>& iterations) {
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  const std::string name = trace.gpu_name();
  const auto from = find_known_gpu(name, *data / "gpus");
  if (!from) {
    return Unexpected{Error{.code = ErrorCode::kImpossible,
                            .message =
                                "expected shapes (record_shapes=True) or the name of a known "
                                "GPU in the trace, found neither",
                            .file = trace.source}};
  }
  const bool same = from->name == gpu.name;
  auto times = same ? kernel_times(graph, trace, iterations)
                    : kernel_times(graph, scaled(trace, *from, gpu), iterations);
  if (!times) return Unexpected{times.error()};
  return MovedKernelTimes{
      std::move(*times),
      same ? "the trace has no shapes: kernels take the time that it measured"
           : "the trace has no shapes: kernels take the time that it measured on " + from->name +
                 ", scaled by family with peaks and bandwidths; no range is known for them"};
}

}  // namespace perfmodel
