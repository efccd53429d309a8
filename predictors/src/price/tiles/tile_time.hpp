#pragma once

#include <string_view>
#include <vector>

#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"
#include "price/kernel_work.hpp"
#include "price/tiles/tile_spaces.hpp"

namespace perfmodel::tiles {

/// A product C[b, m, n] = A B by one schedule. Times in microseconds.
struct TileTime {
  double time_us = 0;
  double load_us = 0;      ///< per tile of the operands, in a full wave
  double compute_us = 0;   ///< the same
  double prologue_us = 0;  ///< first tile of a wave
  double epilogue_us = 0;  ///< results of a wave
  double fixed_us = 0;     ///< time of a kernel without work
  double reduce_us = 0;    ///< kernel that adds up the parts of k, its fixed time included
  double waves = 0;        ///< blocks over the SMs' places; the last wave by its filled share
  double dram_bytes = 0;
  int resident = 1;  ///< blocks on an SM
  int split_k = 1;
  std::string_view bound = {};  ///< "compute", "load"
};

struct TileOptions {
  bool double_buffer = true;
  int split_k = 1;
};

/// The time of a schedule:
///
///   resident  = min(registers of an SM, shared memory, threads, blocks)
///   t_compute = R max(2 bm bn bk / (P / SMs e i o), shared-memory reads / (128 B per clock))
///   t_load    = max(R (bm + bn) bk s / B_L2 per SM, bytes of the wave's tiles / B_DRAM, 0.2 us)
///   wave      = t_load + K / (bk split) * t + R bm bn s_out / B_store
///   time      = t_0 + waves + reduction;   t = max(t_load, t_compute) with double buffers, else
///                                          their sum
///
/// R blocks of an SM run side by side; the last wave has as many as are left. P is the sustained
/// peak and e the share of it that the library's best inner loop reached on the architecture; i is
/// the share of multiply-adds among the instructions of a thread's inner loop (vector units), o =
/// min(1, warps of the SM / 4): each of its four parts needs a warp. Warps read their fragments
/// from shared memory. A wave's tiles form a near-square of the result (swizzle), so rows and
/// columns that its blocks share come from DRAM once; operands that fit into L2 come from there
/// once. Without double buffers registers and shared memory stay the schedule's, so only the
/// overlap goes.
///
/// Not in it: bank conflicts, uncoalesced rows, clocks under load. Assumes that m, n, k are at
/// least 1; the error of best tiles against cuBLAS is in docs/tiles.md.
TileTime tile_time(const TileSchedule& schedule, const GemmShape& shape, const TileOptions& options,
                   const Gpu& gpu);

/// Parts of k by the rule of Hidet: the largest of 8, 4, 2, 1 with at most 5 blocks of 64 x 64 per
/// SM that divides k.
int split_k_parts(const GemmShape& shape, const Gpu& gpu);

struct RankedTile {
  TileSchedule schedule;
  TileTime time;
};

/// All valid schedules, the fastest first; each with the better of no split and `split_k_parts`.
/// Errors: a GPU that cannot run the space.
Result<std::vector<RankedTile>> rank_tiles(const TileSpaceList& list, TileSpace space,
                                           const GemmShape& shape, bool double_buffer,
                                           const Gpu& gpu);

}  // namespace perfmodel::tiles
