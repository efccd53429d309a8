#include "price/tiles/tile_spaces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace perfmodel::tiles {
namespace {

constexpr int kWarpThreads = 32, kOtherRegisters = 48, kFloatBytes = 4, kHalfBytes = 2;
constexpr Sides kWarpMid{4, 8};  ///< threads of a warp
constexpr Sides kInstruction{16, 8};
constexpr int kInstructionDepth = 16;
constexpr int kMostRegistersPerThread = 255, kMostRegistersPerSm = 65'536;
constexpr int kMostThreads = 1024, kMostSharedBytes = 48 * 1024;

constexpr std::array<Sides, 4> kBlockWarps = {{{1, 1}, {1, 2}, {2, 2}, {2, 4}}};
constexpr std::array<Sides, 3> kWarpInner = {{{4, 4}, {4, 8}, {8, 4}}};

int parts(int whole, int part) { return (whole + part - 1) / part; }

int rounded_registers(int count) { return parts(count + kOtherRegisters, 8) * 8; }

TileSpaceList simt_space(int most_outer, const std::vector<int>& depths) {
  TileSpaceList list;
  for (const Sides block_warps : kBlockWarps) {
    for (int outer_m = 1; outer_m <= most_outer; ++outer_m) {
      for (int outer_n = 1; outer_n <= most_outer; ++outer_n) {
        for (const Sides inner : kWarpInner) {
          for (const int depth : depths) {
            ++list.raw;
            const TileSchedule tile = simt_tile(block_warps, {outer_m, outer_n}, inner, depth);
            if (fits(tile)) list.valid.push_back(tile);
          }
        }
      }
    }
  }
  return list;
}

bool divides_evenly(Sides block, int block_k, Sides warp, int warp_k) {
  return block.m % warp.m == 0 && block.n % warp.n == 0 && block_k % warp_k == 0 &&
         warp.m % kInstruction.m == 0 && warp.n % kInstruction.n == 0 &&
         warp_k % kInstructionDepth == 0;
}

TileSpaceList mma_space() {
  constexpr int kBlocks[] = {32, 64, 128, 256}, kBlockDepths[] = {8, 16, 32, 64, 128};
  constexpr int kWarps[] = {16, 32, 48, 64}, kWarpDepths[] = {8, 16, 32, 64};
  TileSpaceList list;
  for (const int m : kBlocks) {
    for (const int n : kBlocks) {
      for (const int k : kBlockDepths) {
        for (const int warp_m : kWarps) {
          for (const int warp_n : kWarps) {
            for (const int warp_k : kWarpDepths) {
              ++list.raw;
              if (!divides_evenly({m, n}, k, {warp_m, warp_n}, warp_k)) continue;
              const TileSchedule tile = mma_tile({m, n}, k, {warp_m, warp_n}, warp_k);
              if (fits(tile)) list.valid.push_back(tile);
            }
          }
        }
      }
    }
  }
  return list;
}

}  // namespace

std::optional<TileSpace> tile_space_of(std::string_view name) {
  const auto* const at = std::ranges::find(kTileSpaceNames, name);
  if (at == std::end(kTileSpaceNames)) return std::nullopt;
  return static_cast<TileSpace>(at - std::begin(kTileSpaceNames));
}

std::string TileSchedule::text() const {
  return fmt::format("{}x{}x{}", block.m, block.n, block_k);
}

TileSchedule simt_tile(Sides block_warps, Sides warp_outer, Sides warp_inner, int block_k) {
  TileSchedule tile;
  tile.block_k = block_k;
  tile.warps = block_warps;
  tile.thread = {warp_outer.m * warp_inner.m, warp_outer.n * warp_inner.n};
  tile.warp = {tile.thread.m * kWarpMid.m, tile.thread.n * kWarpMid.n};
  tile.block = {tile.warp.m * block_warps.m, tile.warp.n * block_warps.n};
  tile.threads = kWarpThreads * tile.warp_count();
  const int staged =
      parts(tile.block.m * block_k, tile.threads) + parts(tile.block.n * block_k, tile.threads);
  tile.registers =
      rounded_registers(tile.thread.m + tile.thread.n + tile.thread.m * tile.thread.n + staged);
  tile.shared_bytes = tile.stages * (tile.block.m + tile.block.n) * block_k * kFloatBytes;
  return tile;
}

TileSchedule default_simt_tile() { return simt_tile({4, 2}, {2, 2}, {4, 4}, 8); }

TileSchedule mma_tile(Sides block, int block_k, Sides warp, int warp_k) {
  TileSchedule tile;
  tile.matrix_units = true;
  tile.block = block;
  tile.block_k = block_k;
  tile.warp = warp;
  tile.warps = {block.m / warp.m, block.n / warp.n};
  tile.warps_k = block_k / warp_k;
  tile.threads = kWarpThreads * tile.warp_count();
  const auto registers = [](int halves, int threads) {
    return parts(halves * kHalfBytes, threads * kFloatBytes);
  };
  const int fragments = registers(warp.m * kInstructionDepth, kWarpThreads) +
                        registers(warp.n * kInstructionDepth, kWarpThreads);
  const int staged =
      registers(block.m * block_k, tile.threads) + registers(block.n * block_k, tile.threads);
  tile.registers = rounded_registers(fragments + parts(warp.m * warp.n, kWarpThreads) + staged);
  tile.shared_bytes = std::max(tile.stages * (block.m + block.n) * block_k * kHalfBytes,
                               block.m * block.n * kFloatBytes);
  return tile;
}

bool fits(const TileSchedule& schedule) {
  return schedule.threads <= kMostThreads && schedule.registers <= kMostRegistersPerThread &&
         schedule.registers * schedule.threads <= kMostRegistersPerSm &&
         schedule.shared_bytes <= kMostSharedBytes;
}

TileSpaceList tile_space(TileSpace space) {
  switch (space) {
    case TileSpace::kSimt1:
      return simt_space(2, {8});
    case TileSpace::kSimt2:
      return simt_space(3, {4, 8});
    case TileSpace::kMma:
      return mma_space();
  }
  return {};
}

}  // namespace perfmodel::tiles
