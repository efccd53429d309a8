#include "gemm_tiles.hpp"

#include <cmath>
#include <limits>
#include <span>
#include <string_view>

namespace perfmodel::kernels {
namespace {

/// Sides are powers of two, kept as shifts: this runs a few dozen times per price.
struct Tile {
  int log2_m, log2_n;
  double efficiency;  ///< e
  double alone;       ///< r
};

/// Vector units. Chosen by hand, in two rounds, on NeuSight's bmm and linear rows (V100, A100,
/// P100, P4, T4; fp32). The rows with paper_train = 0 were in view too, so none of that data is an
/// independent check.
constexpr Tile kVectorTiles[] = {
    {7, 7, 0.93, 0.75}, {7, 6, 0.88, 0.55}, {6, 7, 0.88, 0.55},
    {6, 6, 0.78, 0.40}, {7, 5, 0.70, 0.40}, {5, 7, 0.70, 0.40},
    {5, 5, 0.45, 0.25}, {6, 3, 0.30, 0.20}, {3, 6, 0.30, 0.20},
};
constexpr Tile kPascalTiles[] = {
    {7, 5, 0.76, 0.50},
    {6, 6, 0.74, 0.45},
    {5, 7, 0.70, 0.45},
    {5, 5, 0.45, 0.25},
};
constexpr Tile kAmpereTiles[] = {
    {6, 7, 0.84, 0.55}, {7, 6, 0.84, 0.55}, {7, 7, 0.84, 0.75}, {7, 5, 0.74, 0.45},
    {5, 7, 0.74, 0.45}, {6, 6, 0.70, 0.40}, {5, 5, 0.45, 0.25},
};

/// Batched products: the library takes one or two tiles per GPU whatever the shape, so that m or n
/// of 64 may leave half of a tile empty. Tiles by the kernel names in NeuSight's bmm rows (100 % of
/// them on A100, P100 and P4; V100 and T4 change between two).
constexpr Tile kMaxwellBatchTiles[] = {{6, 7, 0.90, 0.55}};
constexpr Tile kVoltaBatchTiles[] = {{6, 6, 0.84, 0.45}, {7, 5, 0.84, 0.45}};
constexpr Tile kTuringBatchTiles[] = {{6, 7, 0.90, 0.55}, {6, 6, 0.84, 0.45}};
constexpr Tile kAmpereBatchTiles[] = {{7, 7, 0.87, 0.75}};

std::span<const Tile> vector_tiles(std::string_view architecture, bool is_batched) {
  if (architecture == "maxwell" || architecture == "pascal") {
    return is_batched ? std::span<const Tile>(kMaxwellBatchTiles) : kPascalTiles;
  }
  if (architecture == "volta")
    return is_batched ? std::span<const Tile>(kVoltaBatchTiles) : kVectorTiles;
  if (architecture == "turing") {
    return is_batched ? std::span<const Tile>(kTuringBatchTiles) : kVectorTiles;
  }
  if (architecture == "ampere" || architecture == "ada" || architecture == "hopper" ||
      architecture == "blackwell") {
    return is_batched ? std::span<const Tile>(kAmpereBatchTiles) : kAmpereTiles;
  }
  return kVectorTiles;
}

/// Tensor and matrix cores; larger tiles are needed to feed them. Estimates (published cuBLAS fp16
/// figures: 0.7-0.8 of peak on large squares), not fitted.
constexpr Tile kMatrixTiles[] = {
    {8, 7, 0.78, 0.85}, {7, 8, 0.78, 0.85}, {7, 7, 0.72, 0.65},
    {7, 6, 0.58, 0.45}, {6, 7, 0.58, 0.45}, {6, 6, 0.45, 0.35},
    {5, 5, 0.20, 0.25}, {6, 3, 0.06, 0.30}, {3, 6, 0.06, 0.30},
};

/// fp32 matrix cores of CDNA: NeuSight's llm rows of MI100 and MI210 reach 0.60-0.65 of the matrix
/// peak (their paper_train is 0; no other rows exist).
constexpr double kFp32MatrixShare = 0.85;
constexpr double kMinSplitDepth = 128;  ///< k that one part of a split keeps at least
constexpr double kMaxSplits = 32;
constexpr double kIoRoundTrips = 3;  ///< first operands, first tile, last store

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

TiledTime tiled_gemm(const GemmShape& shape, int item_size, DType dtype, bool matrix_units,
                     double dram_bytes, double flop_gain, const Gpu& gpu) {
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
  const auto tiles = matrix_units ? std::span<const Tile>(kMatrixTiles)
                                  : vector_tiles(gpu.architecture, shape.batch > 1);
  for (const Tile& tile : tiles) {
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
      const double splits = round_down(std::min(2 * sms / blocks, max_splits));
      if (splits > 1) consider(splits, 2 * fixed + splits * reduction_time);
    }
  }
  return best;
}

}  // namespace perfmodel::kernels
