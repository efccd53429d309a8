#include "trace/moved_kernel_times.hpp"

#include <algorithm>
#include <unordered_map>

#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
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

bool launches_graphs(const Trace& trace) {
  std::unordered_map<NameId, bool> known;
  return std::ranges::any_of(trace.gpu, [&](const GpuEvent& event) {
    if (event.launch < 0) return false;
    const HostEvent& call = trace.host[static_cast<std::size_t>(event.launch)];
    const auto [at, added] = known.try_emplace(call.name, false);
    if (added) at->second = is_graph_launch_call(trace.name(call));
    return at->second;
  });
}

std::string sentence_of(bool without_shapes, const Gpu* from) {
  std::string text = without_shapes
                         ? "the trace has no shapes: kernels take the time that it measured"
                         : "kernels of captured graphs have no ops: they take the time that the "
                           "trace measured";
  if (from) {
    text += " on " + from->name +
            ", scaled by family with peaks and bandwidths; no range is known for them";
  }
  return text;
}

}  // namespace

bool has_kernels_without_model(const ExecutionGraph& graph, const Trace& trace) {
  return lacks_sizes(graph) || launches_graphs(trace);
}

Result<std::optional<MovedKernelTimes>> kernel_times_on(
    const ExecutionGraph& graph, const Trace& trace, const Gpu& gpu,
    const std::optional<std::pair<std::size_t, std::size_t>>& iterations) {
  if (!has_kernels_without_model(graph, trace)) return std::optional<MovedKernelTimes>();
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  const std::string name = trace.gpu_name();
  const auto from = find_known_gpu(name, *data / "gpus");
  if (!from) {
    return Unexpected{Error{.code = ErrorCode::kImpossible,
                            .message =
                                "expected shapes (record_shapes=True) and no captured graphs, or "
                                "the name of a known GPU in the trace, found neither",
                            .file = trace.source}};
  }
  const bool same = from->name == gpu.name, without_shapes = lacks_sizes(graph);
  const auto calls = without_shapes ? KernelTimes::Calls::kAll : KernelTimes::Calls::kGraphLaunches;
  auto times = same ? kernel_times(graph, trace, iterations, calls)
                    : kernel_times(graph, scaled(trace, *from, gpu), iterations, calls);
  if (!times) return Unexpected{times.error()};
  return MovedKernelTimes{std::move(*times), sentence_of(without_shapes, same ? nullptr : &*from)};
}

}  // namespace perfmodel
