#include "gemm_tiles.hpp"

#include "matrix_gemm.hpp"

#include <limits>
#include <span>

namespace perfmodel::kernels {
namespace {

/// fp32 matrix cores of CDNA: NeuSight's llm rows of MI100 and MI210 reach 0.60-0.65 of the matrix
/// peak (their paper_train is 0; no other rows exist).
constexpr double kFp32MatrixShare = 0.85;
constexpr double kMinSplitDepth = 128;  ///< k that one part of a split keeps at least
constexpr double kMaxSplits = 32;
constexpr double kIoRoundTrips = 3;  ///< first operands, first tile, last store

/// The library's tiles for such a product (data/architectures).
std::span<const GemmTile> tiles_of(const Architecture& architecture, bool matrix_units,
                                   bool is_batched) {
  if (matrix_units) return architecture.matrix_gemm_tiles;
  const bool has_own = is_batched && !architecture.batched_gemm_tiles.empty();
  return has_own ? architecture.batched_gemm_tiles : architecture.gemm_tiles;
}

double blocks_along(std::int64_t size, int log2_tile) {
  return static_cast<double>((size + (std::int64_t{1} << log2_tile) - 1) >> log2_tile);
}

/// Cheaper than the library's without SSE4.1; x >= 0 and below 2^63.
double round_up(double x) {
  const auto whole = static_cast<double>(static_cast<std::int64_t>(x));
  return whole < x ? whole + 1 : whole;
}
double round_down(double x) { return static_cast<double>(static_cast<std::int64_t>(x)); }

}  // namespace

TiledTime tiled_gemm(const GemmShape& shape, double item_size, DType dtype, bool matrix_units,
                     double dram_bytes, double flop_gain, const Gpu& gpu, double tile_exponent,
                     double share) {
  if (const MatrixGemm* set =
          matrix_units ? measured_products(dtype, shape.scaling, gpu) : nullptr) {
    return matrix_gemm(*set, shape, item_size, dtype, dram_bytes, flop_gain, gpu, tile_exponent,
                       share);
  }
  const double b = static_cast<double>(shape.batch), m = static_cast<double>(shape.m),
               n = static_cast<double>(shape.n), k = static_cast<double>(shape.k);
  const double sms = static_cast<double>(gpu.num_sms);
  double per_sm = terms::sustained_flop_per_us(gpu, dtype, matrix_units) / sms * flop_gain;
  if (matrix_units && dtype == DType::kFloat32) per_sm *= kFp32MatrixShare;
  const double l2 = terms::l2_bytes_per_us(gpu);
  const double dram_time = terms::stream_time(gpu, dram_bytes, 1);
  const double fixed =
      terms::empty_kernel_us(gpu) + kIoRoundTrips * terms::kConstants.dram_latency_us;
  const double per_element_time = 2 * k / per_sm;
  const double per_row_time = k * item_size / l2 / flop_gain;
  const double reduction_time = 2 * b * m * n * 4 / l2;
  const double max_splits = std::min(kMaxSplits, k / kMinSplitDepth);

  TiledTime best;
  best.total = std::numeric_limits<double>::infinity();
  for (const GemmTile& tile : tiles_of(gpu.architecture, matrix_units, shape.batch > 1)) {
    const double blocks =
        b * blocks_along(shape.m, tile.log2_m) * blocks_along(shape.n, tile.log2_n);
    const double elements = static_cast<double>(std::int64_t{1} << (tile.log2_m + tile.log2_n));
    const double sides =
        static_cast<double>((std::int64_t{1} << tile.log2_m) + (std::int64_t{1} << tile.log2_n));
    const double tile_time = elements * per_element_time / tile.efficiency;
    const double memory = std::max(dram_time, blocks * sides * per_row_time);
    const auto consider = [&](double splits, double latency) {
      const double compute =
          tile_time / splits * std::max(round_up(blocks * splits / sms), 1 / tile.alone);
      const double total = latency + std::max(compute, memory);
      if (total < best.total) best = {compute, memory, latency, total};
    };
    consider(1, fixed);
    if (2 * blocks <= sms) {
      // Parts of the least depth need not be whole: else time falls where k allows one more.
      const double splits = std::min(round_down(2 * sms / blocks), max_splits);
      if (splits > 1) consider(splits, 2 * fixed + splits * reduction_time);
    }
  }
  return best;
}

}  // namespace perfmodel::kernels
