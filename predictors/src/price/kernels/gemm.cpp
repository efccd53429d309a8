#include <algorithm>
#include <string_view>

#include "gemm_tiles.hpp"
#include "hashed_product.hpp"
#include "matrix_gemm.hpp"
#include "models.hpp"
#include "price/kernel_work.hpp"

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

bool runs_on_old_kernels(const GemmShape& s, double item_size, const Gpu& gpu) {
  return item_size == 2 && gpu.architecture.unaligned_half_gemm_share > 0 &&
         (s.n % 8 != 0 || s.k % 8 != 0);
}

bool is_aligned(const GemmShape& s, double item_size) {
  return s.k * static_cast<std::int64_t>(8 * item_size) % 128 == 0;
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

bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

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
    const bool aligned = is_aligned(*shape, item_size);
    const bool is_measured =
        work.matrix_units && measured_products(work.dtype, shape->scaling, gpu);
    const bool falls_back = is_measured && runs_on_old_kernels(*shape, item_size, gpu);
    TiledTime t = tiled_gemm(*shape, item_size, work.dtype, work.matrix_units, work.bytes().value,
                             aligned || falls_back ? 1 : kUnalignedShare, gpu);
    if (falls_back) {
      t.compute /= gpu.architecture.unaligned_half_gemm_share;
      t.memory /= gpu.architecture.unaligned_half_gemm_share;
    }
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

const KernelModel& gemm_model() {
  static const Gemm model;
  return model;
}

}  // namespace perfmodel::kernels
