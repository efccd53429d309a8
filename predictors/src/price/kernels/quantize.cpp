#include "quantize.hpp"

#include "models.hpp"
#include "price/terms.hpp"

namespace perfmodel::kernels {
namespace {

/// Share of consecutive tensors that the caches hold: all up to 0.8 of their size, nothing beyond
/// 1.1 (fp8 conversions on H100, B200 and RTX PRO 6000 alike).
double share_in_cache(double bytes, double cache) {
  return std::clamp((1.1 * cache - bytes) / (0.3 * cache), 0.0, 1.0);
}

/// Kernels that quantise activations move every byte once, and each element takes clocks:
///
///   t = t_0 + max(elements / (rate SMs clock), bytes_missed / (s B_DRAM))
///
/// bytes_missed: what the last-level cache does not hold of input and result, see `share_in_cache`.
/// Constants by architecture, type and scaling; without them a plain stream, out of range.
class Quantize final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    constexpr std::string_view kName = "quantize-heuristic";
    const auto* shape = std::get_if<RowShape>(&work.shape);
    const QuantizeKernel* measured =
        shape ? measured_quantize(work.dtype, shape->scaling, gpu) : nullptr;
    if (!measured) {
      const double latency = terms::empty_kernel_us(gpu) + 2 * terms::kConstants.dram_latency_us;
      Price price =
          terms::make_price(0, terms::stream_time(gpu, work.bytes().value, 1), latency, kName, 0.4);
      price.in_range = false;
      return price;
    }
    const double bytes = work.bytes().value;
    const double missed = bytes * (1 - share_in_cache(bytes, terms::cache_bytes(gpu)));
    const double elements = static_cast<double>(shape->rows) * static_cast<double>(shape->cols);
    return terms::make_price(
        elements / (measured->elements_per_clock_per_sm * terms::sm_clocks_per_us(gpu)),
        missed / (measured->dram_share * gpu.dram_bandwidth.value * 1e-6), measured->latency_us,
        kName);
  }
};

}  // namespace

const QuantizeKernel* measured_quantize(DType dtype, Scaling scaling, const Gpu& gpu) {
  const QuantizeKernels& known = gpu.architecture.quantize;
  const auto found = [](const std::optional<QuantizeKernel>& kernel) {
    return kernel ? &*kernel : nullptr;
  };
  if (dtype == DType::kFloat4) return found(known.fp4);
  if (dtype != DType::kFloat8) return nullptr;
  switch (scaling) {
    case Scaling::kTensor: return found(known.fp8_tensor);
    case Scaling::kToken: return found(known.fp8_token);
    case Scaling::kBlock: return found(known.fp8_block);
  }
  return nullptr;
}

const KernelModel& quantize_model() { return the_only<Quantize>(); }

}  // namespace perfmodel::kernels
