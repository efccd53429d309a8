#include "convolution.hpp"

#include <cmath>

#include "gemm_tiles.hpp"
#include "models.hpp"

namespace perfmodel::kernels {
namespace {

/// Below this many channels the transforms dominate and libraries fall back.
constexpr std::int64_t kWinogradMinChannels = 16;
/// Implicit GEMM computes addresses in its inner loop.
constexpr double kImplicitGemmShare = 0.85;

/// Input gradients of a first layer (c <= 8) run as direct kernels; DeepBench shows 0.1-0.3 of peak
/// on a GTX 1080 Ti. This and the rule for 1x1 input gradients were read off its dgrad rows.
constexpr std::int64_t kFewChannels = 8;
constexpr double kFewChannelsShare = 0.2;

/// Patch embeddings in half types: fewer channels than matrix units take at a time, in filters that
/// do not overlap, for which libraries have no kernels of first layers. They run on vector units at
/// what DeepBench's forward rows of up to four channels reach in fp32 (the median; 0.26 to 0.48 by
/// GPU).
constexpr double kPatchShare = 0.35;

bool is_patch_embedding(const ConvolutionShape& c, DType dtype) {
  return (dtype == DType::kFloat16 || dtype == DType::kBFloat16) &&
         c.pass == ConvolutionShape::Pass::kForward && c.c / c.groups < kFewChannels &&
         c.stride > 1 && c.stride >= std::max(c.r, c.s);
}

/// Share of the peak that the fused Winograd kernel's multiplications reach.
constexpr double kFusedWinogradShare = 0.45;

/// The transforms' own arithmetic: boards with much bandwidth per FLOP (P100, V100) do not move the
/// transformed tensors at their DRAM rate.
constexpr double kTransformBytesPerFlop = 0.027;

double tiles_of(const ConvolutionShape& c, std::int64_t tile) {
  return static_cast<double>(c.n * ((c.p + tile - 1) / tile) * ((c.q + tile - 1) / tile));
}

/// Winograd F(2x2, 3x3) in one kernel: 16 multiplications per channel pair for four results. Blocks
/// of 32 output tiles x 32 filters.
double fused_winograd_us(const ConvolutionShape& c, const Gpu& gpu, double bytes) {
  const double tiles = std::ceil(tiles_of(c, 2) / 32) * 32;
  const double filters = std::ceil(static_cast<double>(c.k) / 32) * 32;
  const double blocks = tiles * filters / 1024;
  const double rate =
      kFusedWinogradShare * terms::sustained_flop_per_us(gpu, DType::kFloat32, false);
  const double waves = blocks / gpu.num_sms;
  const double flop = 2 * 16 * tiles * filters * static_cast<double>(c.c);
  return std::max(flop / rate * std::ceil(waves) / waves, terms::stream_time(gpu, bytes, 1));
}

/// Winograd F(4x4, 3x3) in four kernels: two transforms, 36 products of [tiles, c] by [c, k], and
/// the transform back; the transformed tensors pass through memory twice.
double staged_winograd_us(const ConvolutionShape& c, const Gpu& gpu, double bytes) {
  const double tiles = tiles_of(c, 4);
  const double in = static_cast<double>(c.c), out = static_cast<double>(c.k);
  const GemmShape products{.batch = 36, .m = static_cast<std::int64_t>(tiles), .n = c.k, .k = c.c};
  const double transformed = 36 * 4 * tiles * (in + out);
  const TiledTime gemm =
      tiled_gemm(products, 4, DType::kFloat32, false, transformed + 36 * 4 * in * out, 1, gpu);
  const double moved = transformed + 36 * 4 * in * out + bytes;
  const double arithmetic =
      moved / (kTransformBytesPerFlop * gpu.peak(DType::kFloat32, false).value * 1e-6);
  return gemm.total + 3 * terms::empty_kernel_us(gpu) +
         std::max(terms::stream_time(gpu, moved, 0.8), arithmetic);
}

}  // namespace

ConvolutionTimes convolution_times(const ConvolutionShape& c, double bytes, const Gpu& gpu) {
  ConvolutionTimes times;
  const std::int64_t in = c.c / c.groups, out = c.k / c.groups;
  using Pass = ConvolutionShape::Pass;
  if (c.r != 3 || c.s != 3 || c.stride != 1 || c.groups != 1 || c.pass == Pass::kWeightGradient ||
      std::min(in, out) < kWinogradMinChannels) {
    return times;
  }
  ConvolutionShape shape = c;
  if (c.pass == Pass::kInputGradient) {  // the same with the roles of the channels exchanged
    std::swap(shape.c, shape.k);
    shape.p = c.h;
    shape.q = c.w;
  }
  times.fused_winograd = fused_winograd_us(shape, gpu, bytes);
  times.staged_winograd = staged_winograd_us(shape, gpu, bytes);
  return times;
}

namespace {

/// Kernels before and after a product in half types that bring input and output from and to NCHW,
/// where the architecture's library was seen to need them [us]. Filters of one element are products
/// on NCHW as it is; the bias is then added by a kernel of its own.
double layout_us(const ConvolutionShape& c, DType dtype, const Gpu& gpu) {
  const double rate = gpu.architecture.convolution_layout_rate;
  if (rate <= 0 || (dtype != DType::kFloat16 && dtype != DType::kBFloat16)) return 0;
  const auto volume = [](std::int64_t channels, std::int64_t height, std::int64_t width) {
    return static_cast<double>(channels) * static_cast<double>(height) * static_cast<double>(width);
  };
  const double n = static_cast<double>(c.n);
  const double out = n * volume(c.k, c.p, c.q), clocks = terms::sm_clocks_per_us(gpu);
  const double broadcast = gpu.architecture.elementwise_rates.broadcast;
  if (c.r == 1 && c.s == 1 && c.stride == 1 && broadcast > 0) return out / (broadcast * clocks);
  return (n * volume(c.c, c.h, c.w) + out) / (rate * clocks);
}

/// Convolution as the implicit GEMM of its pass, by the tile model of `gemm_tiles.hpp`:
///
///   forward          m = n p q, n = k / g, k = c / g r s, batch g
///   input gradient   m = n h w, n = c / g, k = k / g r s (FLOP / stride^2 each)
///   weight gradient  m = k / g, n = c / g r s, k = n p q
///
/// fp32 3x3 filters with stride 1 run as Winograd (`convolution_times`) where that is faster.
/// Depthwise layers (one channel per group) are bound by memory, patch embeddings in half types by
/// vector units. Layout changes (NCHW to NHWC for
/// tensor cores) add one pass over input and output.
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
    if (is_patch_embedding(*c, work.dtype)) {
      const double rate = kPatchShare * gpu.peak(DType::kFloat32, false).value * 1e-6;
      Price price = terms::make_price(work.flop.value / rate,
                                      work.bytes().value / terms::dram_bytes_per_us(gpu),
                                      terms::empty_kernel_us(gpu), "convolution-heuristic", 0.5);
      price.in_range = false;
      return price;
    }
    if (work.matrix_units) memory_factor = 2;
    const int item_size = work.dtype == DType::kFloat64                                     ? 8
                          : work.dtype == DType::kFloat16 || work.dtype == DType::kBFloat16 ? 2
                                                                                            : 4;
    const TiledTime t = tiled_gemm(g, item_size, work.dtype, work.matrix_units,
                                   memory_factor * work.bytes().value, gain, gpu);
    double compute = t.compute;
    bool winograd = false;
    if (!work.matrix_units && work.dtype == DType::kFloat32) {
      const ConvolutionTimes times = convolution_times(*c, work.bytes().value, gpu);
      const double best = std::min(times.fused_winograd, times.staged_winograd);
      winograd = best < std::max(t.compute, t.memory);
      if (winograd) compute = best;
    }
    Price price =
        terms::make_price(compute + layout_us(*c, work.dtype, gpu), winograd ? 0 : t.memory,
                          t.latency, "convolution-heuristic", 0.4);
    price.in_range = winograd;
    return price;
  }
};

}  // namespace

const KernelModel& convolution_model() {
  static const Convolution model;
  return model;
}

}  // namespace perfmodel::kernels
