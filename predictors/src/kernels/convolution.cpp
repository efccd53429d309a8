#include "gemm_tiles.hpp"
#include "models.hpp"

namespace perfmodel::kernels {
namespace {

/// Winograd F(4x4, 3x3) needs a quarter, F(2x2, 3x3) 1/2.25 of the multiplications; transforms and
/// worse inner loops eat part of it. Results come in tiles of 4 x 4 or 2 x 2. Chosen on NeuSight's
/// conv2d rows (V100, P100, P4, T4), where library choices leave an error of some 30 %.
constexpr double kWinograd4Gain = 1.7;
constexpr double kWinograd2Gain = 1.35;
/// Below this many channels the transforms dominate and libraries fall back.
constexpr std::int64_t kWinogradMinChannels = 16;
/// Implicit GEMM computes addresses in its inner loop.
constexpr double kImplicitGemmShare = 0.85;

/// Input gradients of a first layer (c <= 8) run as direct kernels; DeepBench shows 0.1-0.3 of peak
/// on a GTX 1080 Ti. This and the rule for 1x1 input gradients were read off its dgrad rows.
constexpr std::int64_t kFewChannels = 8;
constexpr double kFewChannelsShare = 0.2;

double winograd_gain(const ConvolutionShape& c) {
  const auto used = [&](std::int64_t tile) {  // share of the tiles that are results
    const std::int64_t p = (c.p + tile - 1) / tile * tile, q = (c.q + tile - 1) / tile * tile;
    return static_cast<double>(c.p * c.q) / static_cast<double>(std::max<std::int64_t>(1, p * q));
  };
  return std::max({kWinograd4Gain * used(4), kWinograd2Gain * used(2), kImplicitGemmShare});
}

/// Convolution as the implicit GEMM of its pass, by the tile model of `gemm_tiles.hpp`:
///
///   forward          m = n p q, n = k / g, k = c / g r s, batch g
///   input gradient   m = n h w, n = c / g, k = k / g r s (FLOP / stride^2 each)
///   weight gradient  m = k / g, n = c / g r s, k = n p q
///
/// fp32 3x3 filters with stride 1 run as Winograd where channels suffice. Depthwise layers (one
/// channel per group) are bound by memory. Layout changes (NCHW to NHWC for tensor cores) add one
/// pass over input and output.
class Convolution final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    const auto* c = std::get_if<ConvolutionShape>(&work.shape);
    if (!c) {
      const double rate = 0.6 * terms::sustained_flop_per_us(gpu, work.dtype, work.matrix_units);
      Price price = terms::make_price(work.flop.value / rate,
                                      work.bytes().value / terms::dram_bytes_per_us(gpu),
                                      terms::empty_kernel_us(gpu), "convolution-heuristic", 0.6);
      price.in_range = false;
      return price;
    }
    const std::int64_t in = c->c / c->groups, out = c->k / c->groups;
    double memory_factor = 1;
    if (in == 1 && out <= 4) {  // depthwise: each input element serves r s results from cache
      const double memory = work.bytes().value / (0.7 * terms::dram_bytes_per_us(gpu));
      const double compute =
          work.flop.value / (0.3 * terms::sustained_flop_per_us(gpu, work.dtype, false));
      Price price = terms::make_price(
          compute, memory, terms::empty_kernel_us(gpu) + 2 * terms::kConstants.dram_latency_us,
          "convolution-heuristic", 0.5);
      price.in_range = false;
      return price;
    }
    GemmShape g{.batch = c->groups, .m = 0, .n = 0, .k = 0};
    double gain = kImplicitGemmShare;
    switch (c->pass) {
      case ConvolutionShape::Pass::kForward:
        g.m = c->n * c->p * c->q;
        g.n = out;
        g.k = in * c->r * c->s;
        break;
      case ConvolutionShape::Pass::kInputGradient:
        g.m = c->n * c->h * c->w;
        g.n = in;
        g.k = out * c->r * c->s;
        // The GEMM over h w has stride^2 times the FLOP. Filters wider than the stride are split by
        // phase and skip the zeros; 1x1 filters are computed with them.
        if (std::min(c->r, c->s) > c->stride) {
          gain *= std::max(1.0, static_cast<double>(g.m) /
                                    std::max(1.0, static_cast<double>(c->n * c->p * c->q)));
        }
        break;
      case ConvolutionShape::Pass::kWeightGradient:
        g.m = out;
        g.n = in * c->r * c->s;
        g.k = c->n * c->p * c->q;
        break;
    }
    if (c->pass == ConvolutionShape::Pass::kInputGradient && in <= kFewChannels) {
      const double compute = work.flop.value / (kFewChannelsShare * terms::sustained_flop_per_us(
                                                                        gpu, work.dtype, false));
      Price price =
          terms::make_price(compute, work.bytes().value / terms::dram_bytes_per_us(gpu),
                            terms::empty_kernel_us(gpu) + 3 * terms::kConstants.dram_latency_us,
                            "convolution-heuristic", 0.5);
      price.in_range = false;
      return price;
    }
    const bool winograd = c->r == 3 && c->s == 3 && c->stride == 1 && !work.matrix_units &&
                          std::min(in, out) >= kWinogradMinChannels;
    if (winograd) gain = winograd_gain(*c);
    if (work.matrix_units) memory_factor = 2;
    const int item_size = work.dtype == DType::kFloat64                                     ? 8
                          : work.dtype == DType::kFloat16 || work.dtype == DType::kBFloat16 ? 2
                                                                                            : 4;
    const TiledTime t = tiled_gemm(g, item_size, work.dtype, work.matrix_units,
                                   memory_factor * work.bytes().value, gain, gpu);
    Price price = terms::make_price(t.compute, t.memory, t.latency, "convolution-heuristic", 0.4);
    price.in_range = winograd && work.dtype == DType::kFloat32;
    return price;
  }
};

}  // namespace

const KernelModel& convolution_model() {
  static const Convolution model;
  return model;
}

}  // namespace perfmodel::kernels
