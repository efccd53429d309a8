#include "matrix_gemm.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "perfmodel/predictors/detail/board_power.hpp"

namespace perfmodel::kernels {
namespace {

// Chosen on bf16 products of A100, H100, B200, GB200 and RTX PRO 6000 together (public silicon
// tables; docs/kernel_models.md has the errors).
constexpr double kMostParts = 32;
constexpr double kWavesOfParts[] = {1, 2};  ///< waves that a split fills
constexpr double kHeatFromUs = 500, kHeatOverUs = 1000;

/// Energy of a FLOP relative to a 16-bit one, where the type has no figures of its own.
constexpr double kTf32EnergyShare = 2;  ///< 2.1 on H100 and H200 (data/measurements)
constexpr double kEighthEnergyShare = 0.6;
constexpr double kQuarterEnergyShare = 0.35;

bool is_eighth(DType dtype) {
  return dtype == DType::kFloat8 || dtype == DType::kInt8 || dtype == DType::kUInt8;
}

double blocks_of(std::int64_t size, int log2_tile) {
  return static_cast<double>((size + (std::int64_t{1} << log2_tile) - 1) >> log2_tile);
}

const std::optional<MatrixGemm>& own_products(DType dtype, Scaling scaling,
                                              const Architecture& architecture) {
  static const std::optional<MatrixGemm> kNone;
  if (dtype == DType::kFloat4) return architecture.matrix_gemm_fp4;
  if (dtype != DType::kFloat8) return kNone;
  switch (scaling) {
    case Scaling::kTensor: break;
    case Scaling::kToken: return architecture.matrix_gemm_fp8_token;
    case Scaling::kBlock: return architecture.matrix_gemm_fp8_block;
  }
  return kNone;
}

/// Time to read the operands once; a GPU with one large L2 reads part of them from there.
double operand_time(const MatrixGemm& set, double bytes, double l2_rate, const Gpu& gpu) {
  const double dram_rate = set.dram_share * gpu.dram_bandwidth.value * 1e-6;
  if (set.reuse_distance <= 0) return bytes / dram_rate;
  const double cache = terms::cache_bytes(gpu);
  const double hit = std::clamp((2 * cache - set.reuse_distance * bytes) / (1.5 * cache), 0.0, 1.0);
  return bytes * (hit / std::max(l2_rate, dram_rate) + (1 - hit) / dram_rate);
}

double energy_share(const MatrixGemm& set, DType dtype, const Architecture& architecture) {
  if (architecture.matrix_gemm && &set == &*architecture.matrix_gemm) {
    if (dtype == DType::kFloat32) return kTf32EnergyShare;
    if (is_eighth(dtype)) return kEighthEnergyShare;
    return dtype == DType::kFloat4 ? kQuarterEnergyShare : 1;
  }
  const bool is_own = !architecture.matrix_gemm_fp8 || &set != &*architecture.matrix_gemm_fp8;
  return dtype == DType::kFloat4 && !is_own ? kQuarterEnergyShare / kEighthEnergyShare : 1;
}

double power_time(const MatrixGemm& set, double flop, DType dtype, const Gpu& gpu) {
  if (gpu.tdp_w <= 0) return 0;
  return flop * measured_picojoule(set, dtype, gpu.architecture) / work_power_w(gpu) * 1e-6;
}

}  // namespace

double held_share(double us) { return std::clamp((us - kHeatFromUs) / kHeatOverUs, 0.0, 1.0); }

const MatrixGemm* measured_products(DType dtype, Scaling scaling, const Gpu& gpu) {
  const Architecture& architecture = gpu.architecture;
  if (const std::optional<MatrixGemm>& own = own_products(dtype, scaling, architecture)) {
    return &*own;
  }
  const bool is_narrow = is_eighth(dtype) || dtype == DType::kFloat4;
  if (is_narrow && architecture.matrix_gemm_fp8) return &*architecture.matrix_gemm_fp8;
  const bool is_tf32 = dtype == DType::kFloat32 && !gpu.peak_tflop_per_s.fp32_matrix;
  const bool is_half = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  const bool has = architecture.matrix_gemm && (is_half || is_tf32 || is_narrow);
  return has ? &*architecture.matrix_gemm : nullptr;
}

double measured_picojoule(const MatrixGemm& set, DType dtype, const Architecture& architecture) {
  return energy_share(set, dtype, architecture) * set.picojoule_per_flop;
}

bool has_own_products(DType dtype, Scaling scaling, const Gpu& gpu) {
  return own_products(dtype, scaling, gpu.architecture).has_value();
}

TiledTime matrix_gemm(const MatrixGemm& set, const GemmShape& shape, double item_size, DType dtype,
                      double dram_bytes, double flop_gain, const Gpu& gpu, double tile_exponent,
                      double share) {
  const double results = static_cast<double>(shape.batch) * static_cast<double>(shape.m) *
                         static_cast<double>(shape.n);
  const double k = static_cast<double>(shape.k), sms = static_cast<double>(gpu.num_sms);
  const double clock = terms::clock_mhz(gpu);
  const double flop_rate = gpu.peak(dtype, true).value * 1e-6 / sms * flop_gain;
  const double l2_rate = set.l2_bytes_per_clock_per_sm * clock * sms;
  const double store_rate = set.store_bytes_per_clock_per_sm * clock;
  const double dram_time = operand_time(set, dram_bytes, l2_rate, gpu);
  const double limit = power_time(set, 2 * results * k, dtype, gpu);
  const double reduction = 2 * results * 4 / l2_rate;
  const double most_parts = set.splits_k ? std::min(kMostParts, k / kLeastPartDepth) : 1;
  const double result_size = std::max(item_size, 2.0);  // products of 8 bits have results of 16

  TiledTime best;
  best.total = std::numeric_limits<double>::infinity();
  for (const GemmTile& tile : set.tiles) {
    const double blocks = static_cast<double>(shape.batch) * blocks_of(shape.m, tile.log2_m) *
                          blocks_of(shape.n, tile.log2_n);
    const double elements = static_cast<double>(std::int64_t{1} << (tile.log2_m + tile.log2_n));
    const double sides =
        static_cast<double>((std::int64_t{1} << tile.log2_m) + (std::int64_t{1} << tile.log2_n));
    const int log2_elements = std::min(tile.log2_m + tile.log2_n, 15);
    const double reached = tile_exponent > 0
                               ? tile.efficiency * std::exp2(tile_exponent * (log2_elements - 15))
                               : tile.efficiency;
    const double sums = 2 * elements * k / (flop_rate * reached);
    const double store = elements * result_size / store_rate;
    const double memory =
        std::max(dram_time, blocks * sides * k * item_size / (l2_rate * flop_gain));
    const auto consider = [&](double parts, double latency) {
      const double filled = blocks * parts / sms;
      const double whole = std::ceil(filled);
      const double tail = set.splits_k ? kTailShare : 1;
      const double waves = filled <= 1 ? 1 : filled + tail * (whole - filled);
      const double compute = waves * (sums / parts + store);
      const double larger = std::max(compute, memory);
      if (latency + larger / share >= best.total) return;
      // Most roots are spared: (1 + x)^(1/3) >= 1 + x / 3 - x^2 / 9, less what rounding may take.
      const double ratio = std::min(compute, memory) / larger, x = ratio * ratio * ratio;
      const double least = larger * (1 + x / 3 - x * x / 9) * (1 - 1e-9);
      if (latency + least / share >= best.total) return;
      double both = std::cbrt(compute * compute * compute + memory * memory * memory);
      const double heat = set.always_hot ? 1 : held_share(compute);
      both += heat * std::max(0.0, limit - both);
      both /= share;
      if (latency + both >= best.total) return;
      const double scale = both / larger;  // so that the larger one is their common time
      best = {compute * scale, memory * scale, latency, latency + both};
    };
    consider(1, set.latency_us);
    for (const double waves : kWavesOfParts) {
      // Parts of the least depth need not be whole: else time falls where k allows one more.
      const double parts = std::min(std::floor(waves * sms / blocks), most_parts);
      if (parts > 1) consider(parts, 2 * set.latency_us + parts * reduction);
    }
  }
  return best;
}

}  // namespace perfmodel::kernels
