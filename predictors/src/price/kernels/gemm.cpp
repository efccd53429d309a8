#include <algorithm>
#include <array>
#include <cmath>

#include "gemm_tiles.hpp"
#include "hashed_product.hpp"
#include "matrix_gemm.hpp"
#include "models.hpp"
#include "price/kernel_work.hpp"
#include "product_epilogue.hpp"

namespace perfmodel::kernels {
namespace {

double item_size_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 8;
    case DType::kFloat16:
    case DType::kBFloat16: return 2;
    case DType::kFloat4: return 0.5;
    case DType::kFloat8:
    case DType::kInt8:
    case DType::kUInt8: return 1;
    default: return 4;
  }
}

/// Rows of k elements that are no multiple of 16 bytes are loaded word by word. Among NeuSight's
/// linear rows random shapes reach 0.75-0.95 of the peak share of aligned ones (medians by GPU; P4
/// less); 0.85 made V100 worse.
constexpr double kUnalignedShare = 0.93;

// TF32 has the figures of 16-bit types, and kernels of its own: small tiles reach less. Chosen on
// the TF32 products of H100 and H200, as `Architecture::tf32_gemm_shares` was.
constexpr double kTf32TileExponent = 0.3;

bool is_aligned(std::int64_t length, double item_size) {
  return length * static_cast<std::int64_t>(8 * item_size) % 128 == 0;
}

/// Whether every row of A, B and C, as stored, begins at a multiple of 16 bytes.
bool rows_are_aligned(const GemmShape& s, double item_size) {
  const std::array lengths{s.a_transposed ? s.m : s.k, s.b_transposed ? s.k : s.n, s.n};
  return std::ranges::all_of(lengths, [&](auto length) { return is_aligned(length, item_size); });
}

/// Slowdown of a product against its architecture's figures: of its sums and loads (`gain`), and of
/// everything except its fixed time (`share`).
struct Slowdown {
  double gain = 1, share = 1, tile_exponent = 0;
};

/// Share of everything that unaligned 16-bit products reach on older kernels, so that their sums
/// keep those kernels' rate. Matrix units do a power of two FLOP per clock; data sheets state their
/// peak at clocks below the boost clock.
double unaligned_half_share(const Gpu& gpu, DType dtype) {
  const double old_kernels = gpu.architecture.unaligned_half_gemm_flop_per_clock_per_sm;
  if (old_kernels <= 0) return 1;
  const double stated = gpu.peak(dtype, true).value * 1e-6 / terms::sm_clocks_per_us(gpu);
  return std::min(1.0, std::sqrt(old_kernels / std::exp2(std::round(std::log2(stated)))));
}

Slowdown tf32_slowdown(const GemmShape& s, bool aligned, const Gpu& gpu) {
  const Tf32Shares& shares = gpu.architecture.tf32_gemm_shares;
  if (!aligned) {
    return {.gain = std::min(kUnalignedShare, shares.unaligned_sums),
            .share = shares.unaligned,
            .tile_exponent = kTf32TileExponent};
  }
  const bool across = s.a_transposed && !s.b_transposed;
  return {.gain = across ? shares.across : 1, .tile_exponent = kTf32TileExponent};
}

/// Slowdown in 16-bit types and TF32. Hopper's and Blackwell's kernels load aligned rows only;
/// older kernels run the other products.
Slowdown slowdown(const GemmShape& s, DType dtype, const Gpu& gpu) {
  const double item_size = item_size_of(dtype);
  const bool aligned = rows_are_aligned(s, item_size);
  if (item_size == 4) return tf32_slowdown(s, aligned, gpu);
  if (aligned) return {};
  const double share = unaligned_half_share(gpu, dtype);
  return {.gain = std::min(kUnalignedShare, share), .share = share};
}

/// One kernel after the other.
Price sum_of(const Price& first, Price second) {
  second.time += first.time;
  second.low += first.low;
  second.high += first.high;
  second.compute += first.compute;
  second.memory += first.memory;
  second.latency += first.latency;
  second.bound = second.latency >= std::max(second.compute, second.memory) ? Bound::kLatency
                 : second.compute >= second.memory                         ? Bound::kCompute
                                                                           : Bound::kMemory;
  second.in_range &= first.in_range;
  return second;
}

using terms::is_half;

/// Dense matrix products by the tile models of `gemm_tiles.hpp` and `matrix_gemm.hpp`. In range:
/// what the constants were chosen on, m, n, k from 16; fp32 on vector units up to 4e12 FLOP, fp16
/// and bf16 on matrix units of architectures that were measured, and types of 8 and 4 bits whose
/// scaling was measured there. A product that quantises A is the sum of both kernels.
class Gemm final : public KernelModel {
 public:
  Price price(const KernelWork& work, const Gpu& gpu) const override {
    if (const auto* hashed = std::get_if<HashedProductShape>(&work.shape)) {
      return hashed_product_price(*hashed, work, gpu);
    }
    if (const auto alone = product_alone(work)) {
      return with_epilogue(price(*alone, gpu), *alone, work, gpu);
    }
    const auto* shape = std::get_if<GemmShape>(&work.shape);
    if (!shape) {  // only totals known: 0.7 of the sustained peak
      const double rate = 0.7 * terms::sustained_flop_per_us(gpu, work.dtype, work.matrix_units);
      Price price = terms::make_price(work.flop.value / rate,
                                      work.bytes().value / terms::dram_bytes_per_us(gpu),
                                      terms::empty_kernel_us(gpu), "gemm-heuristic", 0.5);
      price.in_range = false;
      return price;
    }
    if (shape->quantizes_a) return price_layer(*shape, work, gpu);
    const double item_size = item_size_of(work.dtype);
    const bool is_measured =
        work.matrix_units && measured_products(work.dtype, shape->scaling, gpu);
    const Slowdown slow =
        is_measured && item_size >= 2
            ? slowdown(*shape, work.dtype, gpu)
            : Slowdown{.gain = is_aligned(shape->k, item_size) ? 1 : kUnalignedShare};
    const TiledTime t =
        tiled_gemm(*shape, item_size, work.dtype, work.matrix_units, work.bytes().value, slow.gain,
                   gpu, slow.tile_exponent, slow.share);
    Price price = terms::make_price(t.compute, t.memory, t.latency, "gemm-heuristic", 0.25);
    const bool is_vector =
        work.dtype == DType::kFloat32 && !work.matrix_units && work.flop.value <= 4e12;
    const bool is_matrix_measured =
        is_measured && (is_half(work.dtype) || has_own_products(work.dtype, shape->scaling, gpu)) &&
        (shape->batch == 1 || shape->m >= 16);
    price.in_range =
        std::min(shape->n, shape->k) >= 16 && ((is_vector && shape->m >= 16) || is_matrix_measured);
    if (!price.in_range) terms::set_range(price, 0.4);
    return price;
  }

 private:
  Price price_layer(GemmShape shape, const KernelWork& work, const Gpu& gpu) const {
    shape.quantizes_a = false;
    const Price product = price(gemm_work(shape, work.dtype, work.matrix_units), gpu);
    const KernelWork quantize =
        quantize_work(shape.batch * shape.m, shape.k, work.dtype, shape.scaling);
    return sum_of(quantize_model().price(quantize, gpu), product);
  }
};

}  // namespace

const KernelModel& gemm_model() { return the_only<Gemm>(); }

}  // namespace perfmodel::kernels
