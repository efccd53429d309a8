#include "trace/moved_kernel_times.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <unordered_map>

#include "base/secrets.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {
namespace {

// Type that a product computes in, as libraries name their kernels.
enum class ProductType : std::uint8_t { kFloat32, kTf32, kHalf, kFloat8 };

ProductType product_type_of_name(std::string_view kernel) {
  const auto has = [kernel](std::string_view part) { return kernel.find(part) != kernel.npos; };
  if (has("e4m3") || has("fp8")) return ProductType::kFloat8;
  if (has("tf32")) return ProductType::kTf32;
  if (has("f16") || has("fp16") || has("bf16") || has("h884") || has("h1688") || has("h16816") ||
      has("hgemm") || has("hshs") || has("_HHS") || has("HB_") || has("_BBS")) {
    return ProductType::kHalf;
  }
  return has("s1688") || has("s16816") ? ProductType::kTf32 : ProductType::kFloat32;
}

// Rate at which libraries compute such products on the GPU. A program that allows TF32 gets it if
// the GPU has it.
FlopPerSecond product_rate(ProductType type, const Gpu& gpu) {
  switch (type) {
    case ProductType::kFloat8: return gpu.peak(DType::kFloat8, true);
    case ProductType::kHalf: return gpu.peak(DType::kFloat16, true);
    case ProductType::kTf32:
      if (gpu.peak_tflop_per_s.tf32_matrix && gpu.vendor != "amd") {
        return {*gpu.peak_tflop_per_s.tf32_matrix * 1e12};
      }
      break;
    case ProductType::kFloat32: break;
  }
  return gpu.peak(DType::kFloat32, gemm_uses_matrix_units(DType::kFloat32, gpu));
}

// Factor of a kernel's time from one GPU to another.
double time_ratio(KernelFamily family, std::string_view kernel, const Gpu& from, const Gpu& to) {
  switch (family) {
    case KernelFamily::kCollective: return 1;
    case KernelFamily::kGemm:
    case KernelFamily::kConvolution: {
      const ProductType type = product_type_of_name(kernel);
      return product_rate(type, from).value / product_rate(type, to).value;
    }
    case KernelFamily::kCopy: return from.pcie_bandwidth.value / to.pcie_bandwidth.value;
    default: return from.dram_bandwidth.value / to.dram_bandwidth.value;
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
      at->second = time_ratio(family, name, from, to);
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
    const HostEvent& call = trace.host[event.launch];
    const auto [at, added] = known.try_emplace(call.name, false);
    if (added) at->second = is_graph_launch_call(trace.name(call));
    return at->second;
  });
}

// The GPU of the trace; none, if it has no file and is not `gpu`, which may have a file of its own.
std::optional<Gpu> traced_gpu(const std::string& name, const Gpu& gpu,
                              const std::filesystem::path& folder) {
  if (find_gpu(name, std::span(&gpu, 1))) return gpu;
  auto known = find_known_gpu(name, folder);
  return known ? std::optional(std::move(*known)) : std::nullopt;
}

// Text for `KernelTimes::other_gpu`.
std::string other_gpu(const std::string& name, const std::optional<Gpu>& from) {
  if (from) return from->name + ", scaled by family with peaks and bandwidths";
  const std::string_view reason = why_not_a_board(name);
  return fmt::format("{}, unscaled, as {}",
                     name.empty() ? "a GPU without a name" : shown_text(name, 200),
                     reason.empty() ? "that GPU is not a known one (see `gpus`)"
                                    : fmt::format("that is {}", reason));
}

std::string sentence_of(bool without_shapes, const std::string& other) {
  std::string text = without_shapes
                         ? "the trace has no shapes: kernels take the time that it measured"
                         : "kernels of captured graphs have no ops: they take the time that the "
                           "trace measured";
  if (!other.empty()) text += " on " + other + "; no range is known for them";
  return text;
}

}  // namespace

Result<MovedKernelTimes> kernel_times_on(
    const ExecutionGraph& graph, const Trace& trace, const Gpu& gpu,
    const std::optional<std::pair<std::size_t, std::size_t>>& iterations) {
  PERFMODEL_TRY(data, find_data_folder());
  const std::string name = trace.gpu_name();
  const std::optional<Gpu> from = traced_gpu(name, gpu, *data / "gpus");
  const bool without_shapes = lacks_sizes(graph), captured = launches_graphs(trace);
  if (!from && (without_shapes || captured)) {
    return decline(
        "expected shapes (record_shapes=True) and no captured graphs, or the name of a known GPU "
        "in the trace, found neither",
        trace.source);
  }
  const bool same = from && from->name == gpu.name;
  PERFMODEL_TRY(times, same || !from ? kernel_times(graph, trace, iterations)
                                     : kernel_times(graph, scaled(trace, *from, gpu), iterations));
  if (!same) times->other_gpu = other_gpu(name, from);
  if (from && is_of_larger_job(graph, trace)) times->alone_on = std::make_shared<const Gpu>(*from);
  MovedKernelTimes made{.times = std::move(*times)};
  if (!without_shapes) made.use = KernelTimes::Use::kUnpriced;
  if (without_shapes || captured) {
    made.sentence = sentence_of(without_shapes, made.times.other_gpu);
  }
  return made;
}

}  // namespace perfmodel
