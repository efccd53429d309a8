#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perfmodel::tiles {

/// Spaces of schedules for a matrix product, after Hidet's hardware-centric ones (Ding et al.,
/// ASPLOS 2023): they depend on the hardware alone, not on m, n, k, since tiles are predicated at
/// the edges.
enum class TileSpace {
  kSimt1,  ///< vector units: a narrow product of choices
  kSimt2,  ///< vector units: a wider one
  kMma,    ///< matrix units in a half type, instruction 16 x 8 x 16
};
/// "simt1", "simt2", "mma", in the order of `TileSpace`.
inline constexpr std::string_view kTileSpaceNames[] = {"simt1", "simt2", "mma"};
std::optional<TileSpace> tile_space_of(std::string_view name);

struct Sides {
  int m = 1, n = 1;
};

/// How a block of threads computes a tile of the result. Sizes in elements.
struct TileSchedule {
  Sides block;      ///< tile of the result that a block computes
  int block_k = 8;  ///< depth of a tile of the operands
  Sides warp;       ///< tile of the result that a warp computes
  Sides warps;      ///< in a block
  int warps_k = 1;  ///< parts of block_k that warps of their own sum (mma)
  Sides thread;     ///< results of a thread (simt), by rows and columns
  bool matrix_units = false;
  int threads = 0;
  int registers = 0;     ///< per thread, 32 bits each
  int shared_bytes = 0;  ///< per block
  int stages = 2;        ///< tiles of the operands in shared memory

  int warp_count() const { return warps.m * warps.n * warps_k; }
  double element_bytes() const { return matrix_units ? 2 : 4; }
  std::string text() const;  ///< "128x128x8"
};

/// Vector units: the tile of a block is block_warps x warp_outer x warp_mid (32 threads) x
/// warp_inner, side by side. Registers of a thread: its rows of A and columns of B, their product
/// in accumulators, its part of the next tile on the way to shared memory, and 48 for addresses;
/// rounded up to 8. Shared memory: two tiles of A and B.
TileSchedule simt_tile(Sides block_warps, Sides warp_outer, Sides warp_mid, Sides warp_inner,
                       int block_k);

/// The schedule used without a search: 128 x 128 x 8 by 256 threads.
TileSchedule default_simt_tile();

/// Matrix units: as above with fragments of the instruction's depth 16, two half-precision numbers
/// per register and fp32 accumulators. Shared memory: two tiles of A and B, or the tile of the
/// results in fp32 where that is larger.
TileSchedule mma_tile(Sides block, int block_k, Sides warp, int warp_k);

/// Limits of a schedule, the same for every GPU: 255 registers per thread, 65,536 per SM, 1,024
/// threads and 48 KiB of shared memory per block; for vector units these 48 KiB are for all blocks
/// that the registers of an SM hold, in units of 128 bytes, and the sides of a block's tile are
/// multiples of threads / block_k, so that all threads load alike.
bool fits(const TileSchedule& schedule);

struct TileSpaceList {
  std::size_t raw = 0;              ///< combinations
  std::vector<TileSchedule> valid;  ///< those that can be built and fit
};

/// Every combination of a space:
///
///   simt1  block_warps 1x1 1x2 2x2 2x4; warp_outer 1x1 1x2 2x1 2x2; warp_mid 4x8; warp_inner 4x4
///          4x8 8x4; k 8
///   simt2  block_warps 1x1 1x2 2x1 2x2 2x4 4x2; warp_outer of 1 to 3 each way; warp_mid 4x8 in two
///          orders, 2x16 16x2 1x32 32x1; warp_inner 4x4; k 4 and 8
///   mma    block 32 64 128 256 each way, k 8 16 32 64 128; warp 16 32 48 64 each way, k 8 16 32
///   64;
///          warps divide the block, the instruction divides a warp's tile
TileSpaceList tile_space(TileSpace space);

}  // namespace perfmodel::tiles
