#include <algorithm>
#include <array>
#include <string_view>

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
    case DType::kFloat64:
      return 8;
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kFloat4:
      return 0.5;
    case DType::kFloat8:
    case DType::kInt8:
    case DType::kUInt8:
      return 1;
    default:
      return 4;
  }
}

/// Rows of k elements that are no multiple of 16 bytes are loaded word by word. Among NeuSight's
/// linear rows random shapes reach 0.75-0.95 of the peak share of aligned ones (medians by GPU; P4
/// less); 0.85 made V100 worse.
constexpr double kUnalignedShare = 0.93;

// TF32 has the figures of 16-bit types, and kernels of its own: small tiles reach less, and
// Hopper's units read it from shared memory along k only. Chosen on the TF32 products of H100 and
// H200 (data/measurements, first draw): 436 aligned ones 10 % (19), 136 others 14 % (46).
constexpr double kTf32TileExponent = 0.3;
constexpr double kTf32AcrossShare = 0.6;  ///< of products neither of whose operands lies along k
constexpr double kTf32UnalignedShare = 0.75;

bool is_aligned(std::int64_t length, double item_size) {
  return length * static_cast<std::int64_t>(8 * item_size) % 128 == 0;
}

/// Whether every row of A, B and C, as they lie in memory, begins at a multiple of 16 bytes.
bool rows_are_aligned(const GemmShape& s, double item_size) {
  const std::array lengths{s.a_transposed ? s.m : s.k, s.b_transposed ? s.k : s.n, s.n};
  return std::ranges::all_of(lengths, [&](auto length) { return is_aligned(length, item_size); });
}

/// How much slower a product runs than the figures of its architecture say: its sums and loads
/// (`gain`), and everything but its fixed time (`share`).
struct Slowdown {
  double gain = 1, share = 1, tile_exponent = 0;
};

/// Of 16-bit types and TF32. Hopper's and Blackwell's kernels load aligned rows only; older ones
/// stand in.
Slowdown slowdown(const GemmShape& s, double item_size, const Gpu& gpu) {
  const bool is_tf32 = item_size == 4;
  const double old_share = gpu.architecture.unaligned_half_gemm_share;
  Slowdown made{.tile_exponent = is_tf32 ? kTf32TileExponent : 0};
  if (rows_are_aligned(s, item_size)) {
    if (is_tf32 && old_share > 0 && s.a_transposed && !s.b_transposed) made.gain = kTf32AcrossShare;
  } else if (old_share > 0) {
    made.gain = old_share;
    made.share = is_tf32 ? kTf32UnalignedShare : old_share;
  } else {
    made.gain = kUnalignedShare;
  }
  return made;
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
            ? slowdown(*shape, item_size, gpu)
            : Slowdown{.gain = is_aligned(shape->k, item_size) ? 1 : kUnalignedShare};
    const TiledTime t = tiled_gemm(*shape, item_size, work.dtype, work.matrix_units,
                                   work.bytes().value, slow.gain, gpu, slow.tile_exponent);
    Price price = terms::make_price(t.compute / slow.share, t.memory / slow.share, t.latency,
                                    "gemm-heuristic", 0.25);
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

const KernelModel& gemm_model() {
  static const Gemm model;
  return model;
}

}  // namespace perfmodel::kernels
