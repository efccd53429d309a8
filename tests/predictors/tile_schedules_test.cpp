// Tile schedules of matrix products: counts of the spaces, resources by hand, the shape of the
// time.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <tuple>

#include "price/tiles/tile_spaces.hpp"
#include "price/tiles/tile_time.hpp"

namespace perfmodel::tiles {
namespace tile_schedules_test {

using ::testing::HasSubstr;

Gpu gpu_of(const char* name) {
  return find_gpu(name, std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus").value();
}

GemmShape product(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t batch = 1) {
  return {.batch = batch, .m = m, .n = n, .k = k};
}

double best_us(TileSpace space, const GemmShape& shape, const Gpu& gpu) {
  return rank_tiles(tile_space(space), space, shape, true, gpu).value().front().time.time_us;
}

// --- counts against an enumeration that shares no code -----------------------------------------

int rounded_up(int x, int step) { return (x + step - 1) / step * step; }

using Pairs = std::vector<std::pair<int, int>>;

// Whether a tile of vector units fits: blocks that run side by side share 48 KiB in units of 128
// bytes, and the threads load whole columns of the tile's sides.
bool simt_fits(int bm, int bn, int bk, int threads, int a, int b) {
  const int staging =
      rounded_up(bm * bk, threads) / threads + rounded_up(bn * bk, threads) / threads;
  const int registers = rounded_up(a + b + a * b + staging + 48, 8);
  if (registers > 255 || registers * threads > 65536 || threads > 1024) return false;
  const int units = 48 * 8 / (65536 / (registers * threads));  // a unit has 128 bytes
  return 2 * (bm + bn) * bk * 4 <= 128 * units && bm * bk % threads == 0 && bn * bk % threads == 0;
}

// {all, valid} of a simt space, by walking over the sizes themselves.
std::pair<int, int> count_simt(const Pairs& warps, int outer, const Pairs& mids,
                               const Pairs& inners, const std::vector<int>& depths) {
  int all = 0, valid = 0;
  for (const auto& [warps_m, warps_n] : warps) {
    for (int om = 1; om <= outer; ++om) {
      for (int on = 1; on <= outer; ++on) {
        for (const auto& [mid_m, mid_n] : mids) {
          for (const auto& [im, in] : inners) {
            for (const int bk : depths) {
              ++all;
              valid += simt_fits(warps_m * om * mid_m * im, warps_n * on * mid_n * in, bk,
                                 32 * warps_m * warps_n, om * im, on * in);
            }
          }
        }
      }
    }
  }
  return {all, valid};
}

std::pair<int, int> count_mma() {
  int all = 0, valid = 0;
  for (int bm = 32; bm <= 256; bm *= 2) {
    for (int bn = 32; bn <= 256; bn *= 2) {
      for (int bk = 8; bk <= 128; bk *= 2) {
        for (int wm = 16; wm <= 64; wm += 16) {
          for (int wn = 16; wn <= 64; wn += 16) {
            for (int wk = 8; wk <= 64; wk *= 2) {
              ++all;
              if (bm % wm != 0 || bn % wn != 0 || bk % wk != 0 || wk % 16 != 0) continue;
              const int threads = 32 * (bm / wm) * (bn / wn) * (bk / wk);
              const int staging = rounded_up(bm * bk * 2, 4 * threads) / (4 * threads) +
                                  rounded_up(bn * bk * 2, 4 * threads) / (4 * threads);
              const int registers = rounded_up(wm / 4 + wn / 4 + wm * wn / 32 + staging + 48, 8);
              const int shared = std::max(2 * (bm + bn) * bk * 2, bm * bn * 4);
              valid += registers <= 255 && registers * threads <= 65536 && threads <= 1024 &&
                       shared <= 48 * 1024;
            }
          }
        }
      }
    }
  }
  return {all, valid};
}

TEST(TileSpaces, CountsEqualAnIndependentEnumeration) {
  const auto counts = [](TileSpace space) {
    const TileSpaceList list = tile_space(space);
    return std::pair(static_cast<int>(list.raw), static_cast<int>(list.valid.size()));
  };
  EXPECT_EQ(counts(TileSpace::kSimt1), count_simt({{1, 1}, {1, 2}, {2, 2}, {2, 4}}, 2, {{4, 8}},
                                                  {{4, 4}, {4, 8}, {8, 4}}, {8}));
  EXPECT_EQ(counts(TileSpace::kSimt2),
            count_simt({{1, 1}, {1, 2}, {2, 1}, {2, 2}, {2, 4}, {4, 2}}, 3,
                       {{4, 8}, {2, 16}, {16, 2}, {1, 32}, {32, 1}, {4, 8}}, {{4, 4}}, {4, 8}));
  EXPECT_EQ(counts(TileSpace::kMma), count_mma());
  EXPECT_EQ(counts(TileSpace::kSimt1), std::pair(48, 25));
  EXPECT_EQ(counts(TileSpace::kSimt2), std::pair(648, 214));
  EXPECT_EQ(counts(TileSpace::kMma), std::pair(5120, 335));
}

// --- resources by hand -------------------------------------------------------------------------

TEST(TileSpaces, DefaultTileByHand) {
  const TileSchedule tile = default_simt_tile();
  EXPECT_EQ(tile.text(), "128x128x8");
  EXPECT_EQ(tile.threads, 256);  // 4 x 2 warps
  // 8 of A, 8 of B, 64 sums, (128 x 8 + 128 x 8) / 256 = 8 of the next tile, 48: 136.
  EXPECT_EQ(tile.registers, 136);
  EXPECT_EQ(tile.shared_bytes, 2 * (128 + 128) * 8 * 4);  // 16,384
}

TEST(TileSpaces, MatrixTileByHand) {
  const TileSchedule tile = mma_tile({64, 128}, 32, {32, 64}, 32);
  EXPECT_EQ(tile.threads, 128);  // 2 x 2 warps
  // A: 32 x 16 halves over 32 threads are 8 registers; B: 16; sums 32 x 64 / 32 = 64; the next tile
  // (64 + 128) x 32 halves over 128 threads 24; 48: 160.
  EXPECT_EQ(tile.registers, 160);
  EXPECT_EQ(tile.shared_bytes, 64 * 128 * 4);  // results, more than 2 x 192 x 32 x 2
  EXPECT_EQ(mma_tile({32, 32}, 128, {32, 32}, 64).shared_bytes, 2 * 64 * 128 * 2);
  EXPECT_EQ(mma_tile({32, 32}, 128, {32, 32}, 64).warp_count(), 2);  // two parts of k
}

// --- the time ----------------------------------------------------------------------------------

TEST(TileTimes, DefaultTileByHand) {
  const Gpu gpu = gpu_of("a100-sxm-80gb");
  const TileSchedule tile = default_simt_tile();
  const TileTime time = tile_time(tile, product(128, 128, 8 * 1000), {}, gpu);
  // 1,000 tiles of one block on one SM: 2 x 128 x 128 x 8 FLOP, of whose instructions 64 of 68 are
  // sums, at the SM's share of the peak and the best measured tile's efficiency.
  const double rate = 19.5e6 / 108 * 0.84 * 64 / 68;
  EXPECT_NEAR(time.compute_us, 2 * 128 * 128 * 8 / rate, 0.02 * time.compute_us);
  EXPECT_EQ(time.bound, "compute");
  EXPECT_NEAR(time.time_us,
              time.fixed_us + time.prologue_us + 1000 * time.compute_us + time.epilogue_us,
              1e-6 * time.time_us);
}

TEST(TileTimes, DoubleBuffersAreNeverSlowerAndAtMostTwiceAsFast) {
  for (const char* name : {"v100-sxm2-32gb", "a100-sxm-80gb", "h100-sxm-80gb"}) {
    const Gpu gpu = gpu_of(name);
    for (const TileSpace space : {TileSpace::kSimt1, TileSpace::kSimt2, TileSpace::kMma}) {
      if (space == TileSpace::kMma && gpu.target == "sm_70") continue;
      for (const GemmShape& shape : {product(1, 4096, 4096), product(1000, 64, 333),
                                     product(4096, 4096, 4096), product(128, 128, 64, 12)}) {
        for (const TileSchedule& tile : tile_space(space).valid) {
          const double on = tile_time(tile, shape, {.double_buffer = true}, gpu).time_us;
          const double off = tile_time(tile, shape, {.double_buffer = false}, gpu).time_us;
          EXPECT_LE(on, off) << name << tile.text();
          EXPECT_LE(off, 2 * on) << name << tile.text();
        }
      }
    }
  }
}

TEST(TileTimes, BestTilesGrowWithTheProductAndNeverBeatThePeak) {
  for (const TileSpace space : {TileSpace::kSimt2, TileSpace::kMma}) {
    for (const char* name : {"a100-sxm-80gb", "h100-sxm-80gb"}) {
      const Gpu gpu = gpu_of(name);
      const bool matrix_units = space == TileSpace::kMma;
      const double peak =
          gpu.peak(matrix_units ? DType::kFloat16 : DType::kFloat32, matrix_units).value * 1e-6;
      double before = 0;
      for (const std::int64_t k : {64, 256, 1024, 4096, 16384}) {  // the same blocks, more terms
        const double us = best_us(space, product(2048, 2048, k), gpu);
        EXPECT_GE(us, before);
        EXPECT_GE(us, 2.0 * 2048 * 2048 * static_cast<double>(k) / peak);
        before = us;
      }
      before = 0;
      for (const std::int64_t batch : {1, 2, 5, 16, 64}) {
        const double us = best_us(space, product(512, 512, 512, batch), gpu);
        EXPECT_GE(us, before) << batch;
        before = us;
      }
      before = 0;
      for (const std::int64_t m : {64, 512, 4096, 16384}) {
        const double us = best_us(space, product(m, 4096, 1024), gpu);
        EXPECT_GE(us, before) << m;
        before = us;
      }
    }
  }
}

TEST(TileTimes, MoreBandwidthSmsOrClockIsNeverSlower) {
  const Gpu gpu = gpu_of("a100-sxm-80gb");
  for (const GemmShape& shape : {product(16, 4096, 4096), product(2048, 2048, 2048)}) {
    for (const TileSpace space : {TileSpace::kSimt1, TileSpace::kMma}) {
      const double us = best_us(space, shape, gpu);
      Gpu better = gpu;
      better.dram_bandwidth.value *= 2;
      EXPECT_LE(best_us(space, shape, better), us);
    }
  }
}

TEST(TileTimes, PartsOfKByTheRule) {
  const Gpu gpu = gpu_of("a100-sxm-80gb");                       // 108 SMs: 540 blocks at most
  EXPECT_EQ(split_k_parts(product(64, 64, 1024), gpu), 8);       // 1 block
  EXPECT_EQ(split_k_parts(product(640, 640, 1024), gpu), 4);     // 100 blocks: 400, not 800
  EXPECT_EQ(split_k_parts(product(640, 640, 1026), gpu), 2);     // 4 does not divide k
  EXPECT_EQ(split_k_parts(product(64, 64, 1023), gpu), 1);       // odd
  EXPECT_EQ(split_k_parts(product(2048, 2048, 1024), gpu), 1);   // 1,024 blocks
  EXPECT_EQ(split_k_parts(product(64, 64, 1024, 300), gpu), 1);  // 300 products
}

TEST(TileTimes, GpusThatCannotRunTheSpaceAreErrors) {
  const auto problem = [](TileSpace space, const char* name) {
    const auto ranked =
        rank_tiles(tile_space(space), space, product(64, 64, 64), true, gpu_of(name));
    return ranked ? std::string("no error") : ranked.error().message;
  };
  EXPECT_THAT(problem(TileSpace::kMma, "v100-sxm2-32gb"), HasSubstr("sm_80 or later"));
  EXPECT_THAT(problem(TileSpace::kSimt1, "mi300x"), HasSubstr("an NVIDIA GPU"));
  EXPECT_EQ(problem(TileSpace::kSimt1, "v100-sxm2-32gb"), "no error");
}

}  // namespace tile_schedules_test
}  // namespace perfmodel::tiles
