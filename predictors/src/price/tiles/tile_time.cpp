#include "price/tiles/tile_time.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/impossible.hpp"
#include "price/terms.hpp"

namespace perfmodel::tiles {
namespace {

constexpr double kRegistersPerSm = 65'536, kSharedBytesPerClock = 128;
constexpr double kSchedulersPerSm = 4, kIoRoundTrips = 3;
constexpr double kLoadedPerInstruction = 4;  ///< floats that a thread reads from shared memory
constexpr int kLeastTargetOfMma = 80;        ///< the instruction 16 x 8 x 16 of half types
/// One round trip to L2, which a tile's load takes however small it is: 200 to 300 clocks in
/// microbenchmarks of Volta to Hopper.
constexpr double kL2LatencyUs = 0.2;
constexpr double kStoreBytesPerClock = 16;  ///< per SM, where the architecture has no figure

/// A GPU's work on tiles per microsecond.
struct TileRates {
  double flop = 0;           ///< FLOP of one SM
  double shared = 0;         ///< bytes of one SM
  double l2 = 0, store = 0;  ///< bytes of one SM
  double dram = 0;           ///< bytes of all
  double fixed_us = 0;
};

double best_efficiency(const std::vector<GemmTile>& list) {
  double best = 0;
  for (const GemmTile& tile : list) best = std::max(best, tile.efficiency);
  return best > 0 ? best : 1;
}

TileRates rates_of(const Gpu& gpu, bool matrix_units) {
  const Architecture& architecture = gpu.architecture;
  const DType dtype = matrix_units ? DType::kFloat16 : DType::kFloat32;
  const double sms = gpu.num_sms, clock = terms::clock_mhz(gpu);
  const MatrixGemm* measured =
      matrix_units && architecture.matrix_gemm ? &*architecture.matrix_gemm : nullptr;
  TileRates rates;
  rates.shared = kSharedBytesPerClock * clock;
  if (measured) {
    rates.flop = gpu.peak(dtype, true).value * 1e-6 / sms * best_efficiency(measured->tiles);
    rates.l2 = measured->l2_bytes_per_clock_per_sm * clock;
    rates.store = measured->store_bytes_per_clock_per_sm * clock;
    rates.dram = measured->dram_share * gpu.dram_bandwidth.value * 1e-6;
    rates.fixed_us = measured->latency_us;
    return rates;
  }
  rates.flop =
      terms::sustained_flop_per_us(gpu, dtype, matrix_units) / sms *
      best_efficiency(matrix_units ? architecture.matrix_gemm_tiles : architecture.gemm_tiles);
  rates.l2 = terms::l2_bytes_per_us(gpu) / sms;
  rates.store = kStoreBytesPerClock * clock;
  rates.dram = terms::dram_bytes_per_us(gpu);
  rates.fixed_us = terms::empty_kernel_us(gpu) + kIoRoundTrips * terms::kConstants.dram_latency_us;
  return rates;
}

double up(double x) { return std::ceil(x - 1e-12); }

int resident_blocks(const TileSchedule& tile, const Gpu& gpu) {
  const double by_registers = kRegistersPerSm / (tile.registers * tile.threads);
  const double by_shared = gpu.shared_memory_per_sm.value / tile.shared_bytes;
  const double by_threads = static_cast<double>(gpu.max_threads_per_sm) / tile.threads;
  const double least = std::min({by_registers, by_shared, by_threads,
                                 static_cast<double>(gpu.architecture.max_blocks_per_sm)});
  return std::max(1, static_cast<int>(least));
}

/// Time of the sums of one operand tile with `resident` blocks on an SM.
double compute_us(const TileSchedule& tile, double resident, const TileRates& rates) {
  const double flop = 2.0 * tile.block.m * tile.block.n * tile.block_k;
  const double occupied = std::min(1.0, resident * tile.warp_count() / kSchedulersPerSm);
  double issued = 1;
  if (!tile.matrix_units) {
    const double sums = static_cast<double>(tile.thread.m) * tile.thread.n;
    issued = sums / (sums + (tile.thread.m + tile.thread.n) / kLoadedPerInstruction);
  }
  // Each warp of the block reads its rows and columns of the tile.
  const double read = static_cast<double>(tile.warps.m * tile.warps.n) *
                      (tile.warp.m + tile.warp.n) * tile.block_k * tile.element_bytes();
  return resident * std::max(flop / (rates.flop * issued * occupied), read / rates.shared);
}

/// A product cut into blocks.
struct TileGrid {
  double rows = 0, columns = 0;  ///< blocks of one product
  double batch = 1;
  double tiles_k = 0;  ///< operand tiles of one block
  double splits = 1;
  double blocks() const { return rows * columns * batch * splits; }
};

/// Bytes that `blocks` blocks, which run side by side, read from DRAM for one operand tile each.
double wave_bytes(const TileSchedule& tile, const TileGrid& grid, double blocks) {
  const double slice = grid.rows * grid.columns;  // blocks that share operands
  const double together = std::min(blocks, slice), slices = blocks / together;
  // A near-square of the result: as many rows as make both sides alike.
  double rows = std::sqrt(together * tile.block.n / tile.block.m);
  rows = std::clamp(rows, together / grid.columns, grid.rows);
  rows = std::clamp(rows, 1.0, together);
  const double columns = together / rows;
  return slices * (rows * tile.block.m + columns * tile.block.n) * tile.block_k *
         tile.element_bytes();
}

struct WaveTime {
  double load = 0, compute = 0, prologue = 0, epilogue = 0, total = 0;
};

WaveTime wave_time(const TileSchedule& tile, const TileGrid& grid, double blocks, double dram_share,
                   double result_bytes, bool double_buffer, const TileRates& rates, double sms) {
  const double resident = up(blocks / sms);
  const double from_l2 =
      resident * (tile.block.m + tile.block.n) * tile.block_k * tile.element_bytes() / rates.l2;
  const double from_dram = dram_share * wave_bytes(tile, grid, blocks) / rates.dram;
  WaveTime wave;
  wave.load = std::max({from_l2, from_dram, kL2LatencyUs});
  wave.compute = compute_us(tile, resident, rates);
  wave.prologue = wave.load;
  wave.epilogue = resident * tile.block.m * tile.block.n * result_bytes / rates.store;
  const double per_tile =
      double_buffer ? std::max(wave.load, wave.compute) : wave.load + wave.compute;
  wave.total = wave.prologue + grid.tiles_k * per_tile + wave.epilogue;
  return wave;
}

/// Share of the waves' reads that DRAM serves: operands that fit into L2 are read from it once.
double share_from_dram(const TileSchedule& tile, const GemmShape& shape, const TileGrid& grid,
                       double wave_blocks, double waves, const Gpu& gpu) {
  const double operands = static_cast<double>(shape.batch) *
                          (static_cast<double>(shape.m) + static_cast<double>(shape.n)) *
                          static_cast<double>(shape.k) * tile.element_bytes();
  const double read = waves * wave_bytes(tile, grid, wave_blocks) * grid.tiles_k;
  const bool fits_l2 = operands <= terms::kConstants.l2_usable * gpu.l2_size.value *
                                       static_cast<double>(shape.batch);
  return fits_l2 ? std::min(1.0, operands / read) : 1;
}

int target_number(const Gpu& gpu) {
  int number = 0;
  const std::string& target = gpu.target;
  if (target.starts_with("sm_")) {
    std::from_chars(target.data() + 3, target.data() + target.size(), number);
  }
  return number;
}

}  // namespace

int split_k_parts(const GemmShape& shape, const Gpu& gpu) {
  const auto blocks_of = [](std::int64_t size) { return (size + 63) / 64; };
  const std::int64_t blocks = shape.batch * blocks_of(shape.m) * blocks_of(shape.n);
  for (const int parts : {8, 4, 2}) {
    if (blocks * parts <= std::int64_t{5} * gpu.num_sms && shape.k % parts == 0) return parts;
  }
  return 1;
}

TileTime tile_time(const TileSchedule& schedule, const GemmShape& shape, const TileOptions& options,
                   const Gpu& gpu) {
  const TileRates rates = rates_of(gpu, schedule.matrix_units);
  const double m = static_cast<double>(shape.m), n = static_cast<double>(shape.n),
               k = static_cast<double>(shape.k), splits = options.split_k, sms = gpu.num_sms;
  const TileGrid grid{.rows = up(m / schedule.block.m),
                      .columns = up(n / schedule.block.n),
                      .batch = static_cast<double>(shape.batch),
                      .tiles_k = up(k / splits / schedule.block_k),
                      .splits = splits};
  TileTime time{.fixed_us = rates.fixed_us,
                .resident = resident_blocks(schedule, gpu),
                .split_k = options.split_k};
  const double wave_blocks = std::min(grid.blocks(), sms * time.resident);
  const double full = std::floor(grid.blocks() / wave_blocks + 1e-12);
  const double left = grid.blocks() - full * wave_blocks;
  time.waves = grid.blocks() / (sms * time.resident);
  const double result_bytes = splits > 1 ? 4 : schedule.element_bytes();
  const double share =
      share_from_dram(schedule, shape, grid, wave_blocks, grid.blocks() / wave_blocks, gpu);
  const auto wave = [&](double blocks) {
    return wave_time(schedule, grid, blocks, share, result_bytes, options.double_buffer, rates,
                     sms);
  };
  const WaveTime whole = wave(wave_blocks);
  time.load_us = whole.load;
  time.compute_us = whole.compute;
  time.prologue_us = whole.prologue;
  time.epilogue_us = whole.epilogue;
  time.bound = whole.compute >= whole.load ? "compute" : "load";
  time.time_us = rates.fixed_us + full * whole.total;
  if (left > 0.5) time.time_us += wave(left).total;
  time.dram_bytes =
      share * grid.blocks() / wave_blocks * grid.tiles_k * wave_bytes(schedule, grid, wave_blocks);
  if (splits > 1) {
    const double results = static_cast<double>(shape.batch) * m * n;
    time.reduce_us =
        rates.fixed_us + (splits * 4 + schedule.element_bytes()) * results / (rates.l2 * sms);
    time.time_us += time.reduce_us;
  }
  return time;
}

Result<std::vector<RankedTile>> rank_tiles(const TileSpaceList& list, TileSpace space,
                                           const GemmShape& shape, bool double_buffer,
                                           const Gpu& gpu) {
  if (gpu.vendor != "nvidia") {
    return impossible("an NVIDIA GPU: schedules are made of warps of 32 threads", gpu.name);
  }
  if (space == TileSpace::kMma && target_number(gpu) < kLeastTargetOfMma) {
    return impossible("a GPU with the instruction 16x8x16 of half types (sm_80 or later) for mma",
                      fmt::format("{} ({})", gpu.name, gpu.target));
  }
  std::vector<RankedTile> ranked;
  const int parts = split_k_parts(shape, gpu);
  for (const TileSchedule& schedule : list.valid) {
    RankedTile one{schedule, tile_time(schedule, shape, {.double_buffer = double_buffer}, gpu)};
    if (parts > 1) {
      const TileTime split =
          tile_time(schedule, shape, {.double_buffer = double_buffer, .split_k = parts}, gpu);
      if (split.time_us < one.time.time_us) one.time = split;
    }
    ranked.push_back(std::move(one));
  }
  std::ranges::stable_sort(ranked, {}, [](const RankedTile& one) { return one.time.time_us; });
  return ranked;
}

}  // namespace perfmodel::tiles
