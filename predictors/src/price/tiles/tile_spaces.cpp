#include "price/tiles/tile_spaces.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace perfmodel::tiles {
namespace {

constexpr int kWarpThreads = 32, kOtherRegisters = 48, kFloatBytes = 4, kHalfBytes = 2;
constexpr Sides kInstruction{16, 8};
constexpr int kInstructionDepth = 16;
constexpr int kMostRegistersPerThread = 255, kMostRegistersPerSm = 65'536;
constexpr int kMostThreads = 1024, kMostSharedBytes = 48 * 1024, kSharedUnit = 128;

/// The choices of a space of vector units. Every combination is a schedule.
struct SimtChoices {
  std::vector<Sides> block_warps, warp_outer, warp_mid, warp_inner;
  std::vector<int> block_k;
};
const SimtChoices& simt1_choices() {
  static const SimtChoices choices{.block_warps = {{1, 1}, {1, 2}, {2, 2}, {2, 4}},
                                   .warp_outer = {{1, 1}, {1, 2}, {2, 1}, {2, 2}},
                                   .warp_mid = {{4, 8}},
                                   .warp_inner = {{4, 4}, {4, 8}, {8, 4}},
                                   .block_k = {8}};
  return choices;
}
/// The second 4 x 8 of `warp_mid` numbers its threads by columns, which has the same time here.
const SimtChoices& simt2_choices() {
  static const SimtChoices choices{
      .block_warps = {{1, 1}, {1, 2}, {2, 1}, {2, 2}, {2, 4}, {4, 2}},
      .warp_outer = {{1, 1}, {1, 2}, {1, 3}, {2, 1}, {2, 2}, {2, 3}, {3, 1}, {3, 2}, {3, 3}},
      .warp_mid = {{4, 8}, {2, 16}, {16, 2}, {1, 32}, {32, 1}, {4, 8}},
      .warp_inner = {{4, 4}},
      .block_k = {4, 8}};
  return choices;
}

int parts(int whole, int part) { return (whole + part - 1) / part; }

int rounded_registers(int count) { return parts(count + kOtherRegisters, 8) * 8; }

/// The blocks that an SM's registers hold at once share 48 KiB, and each of a block's threads
/// loads the same number of elements of A and of B.
bool loads_and_shares_evenly(const TileSchedule& tile) {
  const int resident = kMostRegistersPerSm / (tile.registers * tile.threads);
  const int share = kMostSharedBytes / resident / kSharedUnit * kSharedUnit;
  const int rows = tile.threads / tile.block_k;
  return tile.shared_bytes <= share && tile.block.m % rows == 0 && tile.block.n % rows == 0;
}

TileSpaceList simt_space(const SimtChoices& choices) {
  TileSpaceList list;
  for (const Sides warps : choices.block_warps) {
    for (const Sides outer : choices.warp_outer) {
      for (const Sides mid : choices.warp_mid) {
        for (const Sides inner : choices.warp_inner) {
          for (const int depth : choices.block_k) {
            ++list.raw;
            const TileSchedule tile = simt_tile(warps, outer, mid, inner, depth);
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

TileSchedule simt_tile(Sides block_warps, Sides warp_outer, Sides warp_mid, Sides warp_inner,
                       int block_k) {
  TileSchedule tile;
  tile.block_k = block_k;
  tile.warps = block_warps;
  tile.thread = {warp_outer.m * warp_inner.m, warp_outer.n * warp_inner.n};
  tile.warp = {tile.thread.m * warp_mid.m, tile.thread.n * warp_mid.n};
  tile.block = {tile.warp.m * block_warps.m, tile.warp.n * block_warps.n};
  tile.threads = kWarpThreads * tile.warp_count();
  const int staged =
      parts(tile.block.m * block_k, tile.threads) + parts(tile.block.n * block_k, tile.threads);
  tile.registers =
      rounded_registers(tile.thread.m + tile.thread.n + tile.thread.m * tile.thread.n + staged);
  tile.shared_bytes = tile.stages * (tile.block.m + tile.block.n) * block_k * kFloatBytes;
  return tile;
}

TileSchedule default_simt_tile() { return simt_tile({4, 2}, {2, 2}, {4, 8}, {4, 4}, 8); }

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
         schedule.shared_bytes <= kMostSharedBytes &&
         (schedule.matrix_units || loads_and_shares_evenly(schedule));
}

TileSpaceList tile_space(TileSpace space) {
  switch (space) {
    case TileSpace::kSimt1: return simt_space(simt1_choices());
    case TileSpace::kSimt2: return simt_space(simt2_choices());
    case TileSpace::kMma: return mma_space();
  }
  return {};
}

}  // namespace perfmodel::tiles
