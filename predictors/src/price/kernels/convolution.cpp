#include "convolution.hpp"

#include <cmath>
#include <span>

#include "gemm_tiles.hpp"
#include "matrix_gemm.hpp"
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

using terms::is_half;

bool is_patch_embedding(const ConvolutionShape& c, DType dtype) {
  return is_half(dtype) && c.pass == ConvolutionShape::Pass::kForward &&
         c.c / c.groups < kFewChannels && c.stride > 1 && c.stride >= std::max(c.r, c.s);
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

/// MIOpen's kernels before and after a product in half types that bring input and output from and
/// to NCHW [us]. Filters of one element are products on NCHW as it is; the bias is then added by a
/// kernel of its own.
double layout_us(const ConvolutionShape& c, const KernelWork& work, const Gpu& gpu) {
  const double rate = gpu.architecture.convolution_layout_rate;
  if (rate <= 0 || !work.matrix_units || !is_half(work.dtype) || c.channels_last) return 0;
  const auto volume = [](std::int64_t channels, std::int64_t height, std::int64_t width) {
    return static_cast<double>(channels) * static_cast<double>(height) * static_cast<double>(width);
  };
  const double n = static_cast<double>(c.n);
  const double out = n * volume(c.k, c.p, c.q), clocks = terms::sm_clocks_per_us(gpu);
  const double broadcast = gpu.architecture.elementwise_rates.broadcast;
  if (c.r == 1 && c.s == 1 && c.stride == 1 && broadcast > 0) return out / (broadcast * clocks);
  return (n * volume(c.c, c.h, c.w) + out) / (rate * clocks);
}

// Convolutions on NVIDIA's matrix units. Chosen on the first draw of bf16 and TF32 convolutions of
// H100 and H200 (data/measurements), and checked by whole steps on older boards (timm, lambda).

/// FLOP per clock and SM that the loop round the matrix instructions gets through in bf16: it
/// computes addresses and feeds the units from shared memory. Boards whose units are slow per clock
/// (RTX 3090: 512) come within 5 % of their peak, A100 (2,048) within 17, H100 (4,096) within 29.
constexpr double kHalfLoopFlop = 10000;
constexpr double kTf32LoopFlop = 4500;
/// Gradients of weights multiply transposed operands, and only elements of 16 bits are transposed
/// on their way from shared memory.
constexpr double kTf32WeightLoopFlop = 700;

/// Input gradients under a stride run one product per phase, each with few taps.
constexpr double kPhasedShare = 0.75;
constexpr double kFilterLatencyUs = 2;  ///< beyond a product's, where filters have several taps

/// Share of the loop's rate that narrower tiles reach.
constexpr GemmTile kTiles[] = {
    {.log2_m = 8, .log2_n = 7},
    {.log2_m = 7, .log2_n = 8},
    {.log2_m = 7, .log2_n = 7},
    {.log2_m = 7, .log2_n = 6, .efficiency = 0.85},
    {.log2_m = 6, .log2_n = 7, .efficiency = 0.85},
    {.log2_m = 6, .log2_n = 6, .efficiency = 0.62},
    {.log2_m = 6, .log2_n = 5, .efficiency = 0.33},
    {.log2_m = 5, .log2_n = 6, .efficiency = 0.33},
    {.log2_m = 5, .log2_n = 5, .efficiency = 0.18},
};
// For architectures without measured products, which run their `matrix_gemm_tiles`.
constexpr double kOldStoreBytesPerClock = 9.2, kOldLatencyUs = 3;

std::int64_t round_up(std::int64_t size, std::int64_t step) {
  return (size + step - 1) / step * step;
}

/// A tap's channels go through the loop 64 bytes at a time. First layers have kernels that pack
/// their few channels, but not for units as wide as Hopper's (4,096 FLOP per clock and SM).
std::int64_t padded_channels(std::int64_t channels, double item_size, const Gpu& gpu) {
  constexpr std::int64_t kPacked = 8;
  constexpr double kMostFlop = 3000;
  const double flop = gpu.peak(DType::kFloat16, true).value * 1e-6 / terms::sm_clocks_per_us(gpu);
  const bool is_packed = channels <= kPacked && flop < kMostFlop;
  return round_up(channels, is_packed ? kPacked : static_cast<std::int64_t>(64 / item_size));
}

/// The product of a pass, and how it runs.
struct ImplicitGemm {
  GemmShape shape;
  double bytes = 0;      ///< bytes that DRAM delivers and takes
  double loop_flop = 0;  ///< per clock and SM
  double share = 1;      ///< a further factor on the rate
  bool splits_k = false;
};

/// The best of the tiles (convolution's `tiled_gemm`, whose splits grow without steps):
///
///   compute = waves (2 tm tn k / (parts e rate) + tm tn itemsize / B_store)
///   rate    = 1 / (1 / peak + 1 / loop)
///   memory  = max(bytes / B_DRAM, blocks (tm + tn) k itemsize / B_L2)
///   t       = t_0 + (compute^3 + memory^3)^(1/3), + t_0 + parts 4 b m n / B_DRAM if k is split
TiledTime implicit_gemm(const ImplicitGemm& g, DType dtype, const Gpu& gpu) {
  const MatrixGemm* measured = measured_products(dtype, Scaling::kTensor, gpu);
  const Architecture& architecture = gpu.architecture;
  const double sms = gpu.num_sms, clock = terms::clock_mhz(gpu);
  const double item_size = size_in_bytes(dtype), dram = terms::dram_bytes_per_us(gpu);
  const double peak = gpu.peak(dtype, true).value * 1e-6 / sms;
  const double rate = g.share * (measured ? 1 / (1 / peak + 1 / (g.loop_flop * clock)) : peak);
  const double l2 =
      clock * sms *
      (measured ? measured->l2_bytes_per_clock_per_sm : architecture.l2_bytes_per_clock_per_sm);
  const double store =
      clock * (measured ? measured->store_bytes_per_clock_per_sm : kOldStoreBytesPerClock);
  const double latency = measured ? measured->latency_us : kOldLatencyUs;
  const double k = static_cast<double>(g.shape.k);
  const double reduction = 4 * static_cast<double>(g.shape.batch) * static_cast<double>(g.shape.m) *
                           static_cast<double>(g.shape.n) / dram;
  TiledTime best;
  best.total = std::numeric_limits<double>::infinity();
  for (const GemmTile& tile :
       measured ? std::span<const GemmTile>(kTiles) : architecture.matrix_gemm_tiles) {
    const std::int64_t tm = std::int64_t{1} << tile.log2_m, tn = std::int64_t{1} << tile.log2_n;
    const double blocks = static_cast<double>(g.shape.batch * (round_up(g.shape.m, tm) / tm) *
                                              (round_up(g.shape.n, tn) / tn));
    const double elements = static_cast<double>(tm * tn);
    const double sums = 2 * elements * k / (rate * tile.efficiency);
    const double memory =
        std::max(g.bytes / dram, blocks * static_cast<double>(tm + tn) * k * item_size / l2);
    const auto consider = [&](double parts, double waves, double fixed) {
      const double compute = waves * (sums / parts + elements * item_size / store);
      const double larger = std::max(compute, memory);
      if (fixed + larger >= best.total) return;
      const double both = std::cbrt(compute * compute * compute + memory * memory * memory);
      if (fixed + both >= best.total) return;
      best = {compute * both / larger, memory * both / larger, fixed, fixed + both};
    };
    const auto filled = [&](double parts) { return blocks * parts / sms; };
    const double whole = std::ceil(filled(1));
    if (!g.splits_k) {
      consider(1, whole, latency);
      continue;
    }
    consider(1, std::max(1.0, filled(1) + kTailShare * (whole - filled(1))), latency);
    for (const double waves : {1.0, 2.0}) {
      const double parts = std::min(waves * sms / blocks, k / kLeastPartDepth);
      if (parts > 1) {
        consider(parts, std::max(1.0, filled(parts)), 2 * latency + parts * reduction);
      }
    }
  }
  return best;
}

/// A kernel that brings n images of `channels` by `pixels` from NCHW to NHWC or back [us], in tiles
/// of 32 by 32: bound by memory or by the SMs' work per element.
double transpose_us(std::int64_t n, std::int64_t channels, std::int64_t pixels, double item_size,
                    const Gpu& gpu) {
  const double rate = gpu.architecture.convolution_layout_rate;
  const double moved = 2 * item_size * static_cast<double>(n * channels * pixels);
  const double elements = static_cast<double>(n * round_up(channels, 32) * round_up(pixels, 32));
  return terms::empty_kernel_us(gpu) +
         std::max(moved / terms::dram_bytes_per_us(gpu),
                  rate > 0 ? elements / (rate * terms::sm_clocks_per_us(gpu)) : 0);
}

/// Convolutions of half types and TF32 by cuDNN: implicit GEMMs on NHWC images,
///
///   forward          m = n p q, n = k / g, k = r s c / g, batch g
///   input gradient   m = n p q, n = c / g, k = r s k / g          (taps over zeros are left out)
///   weight gradient  m = k / g, n = r s c / g, k = n p q, split
///
/// and of NCHW images with transposes of what they read and write. Filters of one element with
/// stride 1 are products on NCHW as it is, if rows of pixels begin at multiples of 16 bytes.
Price tensor_core_price(const ConvolutionShape& c, const KernelWork& work, const Gpu& gpu) {
  using Pass = ConvolutionShape::Pass;
  const std::int64_t in = c.c / c.groups, out = c.k / c.groups, taps = c.r * c.s;
  const std::int64_t pixels = c.h * c.w, results = c.p * c.q;
  const double item_size = size_in_bytes(work.dtype);
  const double image = item_size * static_cast<double>(c.n * c.c * pixels);
  const bool is_product = taps == 1 && c.stride == 1 && c.groups == 1;
  const bool is_on_nchw =
      is_product && !c.channels_last && pixels * static_cast<std::int64_t>(item_size) % 16 == 0;
  ImplicitGemm g{.shape = {},
                 .bytes = work.bytes().value,
                 .loop_flop = is_half(work.dtype) ? kHalfLoopFlop : kTf32LoopFlop,
                 .splits_k = is_product && c.channels_last};
  const bool skips_pixels = std::max(c.r, c.s) < c.stride;
  if (skips_pixels) {  // a gradient is filled with zeros first
    g.bytes += c.pass == Pass::kInputGradient
                   ? image
                   : image * (static_cast<double>(results) / static_cast<double>(pixels) - 1);
  }
  switch (c.pass) {
    case Pass::kForward:
      g.shape = {.batch = c.groups,
                 .m = c.n * results,
                 .n = out,
                 .k = taps * padded_channels(in, item_size, gpu)};
      if (is_on_nchw) g.shape = {.batch = c.n, .m = c.k, .n = pixels, .k = c.c};
      break;
    case Pass::kInputGradient:
      g.shape = {.batch = c.groups,
                 .m = c.n * results,
                 .n = in,
                 .k = taps * padded_channels(out, item_size, gpu)};
      if (is_on_nchw) g.shape = {.batch = c.n, .m = c.c, .n = pixels, .k = c.k};
      if (c.stride > 1 && !skips_pixels) g.share = kPhasedShare;
      break;
    case Pass::kWeightGradient:
      g.shape = {.batch = c.groups, .m = out, .n = taps * round_up(in, 8), .k = c.n * results};
      g.splits_k = true;
      if (!is_half(work.dtype)) g.loop_flop = kTf32WeightLoopFlop;
      break;
  }
  const TiledTime t = implicit_gemm(g, work.dtype, gpu);
  double transposes = 0;
  if (!c.channels_last && !is_on_nchw) {
    transposes = transpose_us(c.n, c.c, pixels, item_size, gpu) +
                 transpose_us(c.n, c.k, results, item_size, gpu) +
                 (taps > 1 ? transpose_us(c.k, in, taps, item_size, gpu) : 0);
  }
  // Whichever bounds the product, the transposes come on top.
  Price price = terms::make_price(t.compute + transposes, t.memory + transposes,
                                  t.latency + (is_product ? 0 : kFilterLatencyUs),
                                  "convolution-heuristic", 0.4);
  price.in_range = false;
  return price;
}

/// Convolution as the implicit GEMM of its pass, by the tile model of `gemm_tiles.hpp`:
///
///   forward          m = n p q, n = k / g, k = c / g r s, batch g
///   input gradient   m = n h w, n = c / g, k = k / g r s (FLOP / stride^2 each)
///   weight gradient  m = k / g, n = c / g r s, k = n p q
///
/// fp32 3x3 filters with stride 1 run as Winograd (`convolution_times`) where that is faster.
/// Depthwise layers (one channel per group) are bound by memory, patch embeddings in half types by
/// vector units. On AMD's matrix units, layout changes add one pass over input and output.
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
    if (is_patch_embedding(*c, work.dtype)) {
      const double rate = kPatchShare * gpu.peak(DType::kFloat32, false).value * 1e-6;
      Price price = terms::make_price(work.flop.value / rate,
                                      work.bytes().value / terms::dram_bytes_per_us(gpu),
                                      terms::empty_kernel_us(gpu), "convolution-heuristic", 0.5);
      price.in_range = false;
      return price;
    }
    const bool is_float = is_half(work.dtype) || work.dtype == DType::kFloat32;
    if (work.matrix_units && gpu.vendor == "nvidia" && is_float) {
      return tensor_core_price(*c, work, gpu);
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
    if (work.matrix_units && !c->channels_last) memory_factor = 2;
    const int item_size = work.dtype == DType::kFloat64 ? 8 : is_half(work.dtype) ? 2 : 4;
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
    Price price = terms::make_price(compute + layout_us(*c, work, gpu), winograd ? 0 : t.memory,
                                    t.latency, "convolution-heuristic", 0.4);
    price.in_range = winograd;
    return price;
  }
};

}  // namespace

const KernelModel& convolution_model() { return the_only<Convolution>(); }

}  // namespace perfmodel::kernels
