#pragma once

#include "team.hpp"

namespace kernels_bench::kernels {

/// Places in an array of a weight [k, n] that is not stored: whole tiles of kTileK x kTileN at a
/// hashed place (ROAST, Desai et al., ICML 2023), or each element at one of its own (HashedNet,
/// Chen et al., ICML 2015).
struct HashedPlaces {
  std::int64_t elements;  ///< size of the array, at least a tile

  /// Place of tile (row, col), or of an element; `run` elements are there.
  PM_HD std::int64_t operator()(std::int64_t row, std::int64_t col, std::int64_t run) const {
    // The finaliser of MurmurHash3, over both numbers.
    std::uint64_t z =
        static_cast<std::uint64_t>(row) * 0x9E3779B97F4A7C15ULL + static_cast<std::uint64_t>(col);
    z = (z ^ (z >> 33)) * 0xFF51AFD7ED558CCDULL;
    z = (z ^ (z >> 33)) * 0xC4CEB9FE1A85EC53ULL;
    z ^= z >> 33;
    return static_cast<std::int64_t>(z % static_cast<std::uint64_t>(elements - run + 1));
  }
};

/// Tiling of a hashed product: blocks of kTileM x kTileN results, threads of kEach x kEach, sums in
/// steps of kTileK.
template <int kTileMOf = 64, int kTileNOf = 64, int kTileKOf = 32, int kEachOf = 4>
struct HashedTiles {
  static constexpr int kTileM = kTileMOf, kTileN = kTileNOf, kTileK = kTileKOf, kEach = kEachOf;
  static constexpr int kAcross = kTileN / kEach, kThreads = kAcross * (kTileM / kEach);
  static constexpr int kPitch = kTileK + 1;  // columns of x spread over the banks
};

/// y[m, n] = x[m, k] W[k, n], fp32; W by its places. Blocks beyond the tiles of y have nothing to
/// do.
template <bool kByElements, class Tiles = HashedTiles<>>
struct HashedProduct {
  static constexpr int kThreads = Tiles::kThreads;
  static constexpr int kSharedBytes =
      (Tiles::kTileM * Tiles::kPitch + Tiles::kTileK * Tiles::kTileN) * 4;
  const float* x;
  const float* array;
  float* y;
  std::int64_t m, n, k;
  HashedPlaces places;

  PM_HD std::int64_t tiles_across() const { return (n + Tiles::kTileN - 1) / Tiles::kTileN; }
  PM_HD std::int64_t tiles() const {
    return (m + Tiles::kTileM - 1) / Tiles::kTileM * tiles_across();
  }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    for (std::int64_t tile = block.block(); tile < tiles(); tile += block.blocks()) {
      const std::int64_t down = tile / tiles_across(), across = tile - down * tiles_across();
      compute_tile(block, down * Tiles::kTileM, across);
    }
  }

 private:
  template <class Block>
  PM_HD void compute_tile(const Block& block, std::int64_t first_row, std::int64_t across) const {
    float* of_x = block.shared();
    float* of_w = of_x + Tiles::kTileM * Tiles::kPitch;
    const std::int64_t first_col = across * Tiles::kTileN;
    const int row = block.thread() / Tiles::kAcross * Tiles::kEach;
    const int col = block.thread() % Tiles::kAcross;  // results are kAcross apart: no bank twice
    float sums[Tiles::kEach][Tiles::kEach] = {};
    for (std::int64_t first_k = 0; first_k < k; first_k += Tiles::kTileK) {
      load_x(block, of_x, first_row, first_k);
      load_w(block, of_w, first_k, across, first_col);
      block.sync();
      for (int i = 0; i < Tiles::kTileK; ++i) {
        PM_UNROLL
        for (int r = 0; r < Tiles::kEach; ++r) {
          const float left = of_x[(row + r) * Tiles::kPitch + i];
          PM_UNROLL
          for (int c = 0; c < Tiles::kEach; ++c) {
            sums[r][c] += left * of_w[i * Tiles::kTileN + col + c * Tiles::kAcross];
          }
        }
      }
      block.sync();  // before the next tiles are written there
    }
    PM_UNROLL
    for (int r = 0; r < Tiles::kEach; ++r) {
      PM_UNROLL
      for (int c = 0; c < Tiles::kEach; ++c) {
        const std::int64_t to_row = first_row + row + r;
        const std::int64_t to_col = first_col + col + c * Tiles::kAcross;
        if (to_row < m && to_col < n) y[to_row * n + to_col] = sums[r][c];
      }
    }
  }

  template <class Block>
  PM_HD void load_x(const Block& block, float* to, std::int64_t first_row,
                    std::int64_t first_k) const {
    for (int i = block.thread(); i < Tiles::kTileM * Tiles::kTileK; i += block.threads()) {
      const int r = i / Tiles::kTileK, c = i % Tiles::kTileK;
      const bool inside = first_row + r < m && first_k + c < k;
      to[r * Tiles::kPitch + c] = inside ? x[(first_row + r) * k + first_k + c] : 0.0F;
    }
  }

  template <class Block>
  PM_HD void load_w(const Block& block, float* to, std::int64_t first_k, std::int64_t across,
                    std::int64_t first_col) const {
    constexpr std::int64_t kRun = std::int64_t{Tiles::kTileK} * Tiles::kTileN;
    const std::int64_t begin = kByElements ? 0 : places(first_k / Tiles::kTileK, across, kRun);
    for (int i = block.thread(); i < kRun; i += block.threads()) {
      const std::int64_t at_k = first_k + i / Tiles::kTileN, at_n = first_col + i % Tiles::kTileN;
      const std::int64_t from = kByElements ? places(at_k, at_n, 1) : begin + i;
      to[i] = at_k < k && at_n < n ? array[from] : 0.0F;
    }
  }
};

/// array += the gradient of W: x[m, k]^T g[m, n], each tile added at its place, atomically.
template <bool kByElements, class Tiles = HashedTiles<>>
struct HashedWeightGradient {
  // A block has a tile of W: kTileK rows; kTileM is how much of the sum it loads at a time.
  static constexpr int kThreads = Tiles::kThreads;
  static constexpr int kSharedBytes =
      (Tiles::kTileM * Tiles::kPitch + Tiles::kTileM * Tiles::kTileN) * 4;
  const float* x;
  const float* gradient;
  float* array;
  std::int64_t m, n, k;
  HashedPlaces places;

  PM_HD std::int64_t tiles_across() const { return (n + Tiles::kTileN - 1) / Tiles::kTileN; }
  PM_HD std::int64_t tiles() const {
    return (k + Tiles::kTileK - 1) / Tiles::kTileK * tiles_across();
  }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    for (std::int64_t tile = block.block(); tile < tiles(); tile += block.blocks()) {
      const std::int64_t down = tile / tiles_across();
      add_tile(block, down, tile - down * tiles_across());
    }
  }

 private:
  static constexpr int kResults = Tiles::kTileK * Tiles::kTileN / Tiles::kThreads;  // per thread

  template <class Block>
  PM_HD void add_tile(const Block& block, std::int64_t down, std::int64_t across) const {
    float* of_x = block.shared();
    float* of_gradient = of_x + Tiles::kTileM * Tiles::kPitch;
    const std::int64_t first_k = down * Tiles::kTileK, first_col = across * Tiles::kTileN;
    float sums[kResults] = {};
    for (std::int64_t first_row = 0; first_row < m; first_row += Tiles::kTileM) {
      for (int i = block.thread(); i < Tiles::kTileM * Tiles::kTileK; i += block.threads()) {
        const int r = i / Tiles::kTileK, c = i % Tiles::kTileK;
        const bool inside = first_row + r < m && first_k + c < k;
        of_x[r * Tiles::kPitch + c] = inside ? x[(first_row + r) * k + first_k + c] : 0.0F;
      }
      for (int i = block.thread(); i < Tiles::kTileM * Tiles::kTileN; i += block.threads()) {
        const int r = i / Tiles::kTileN, c = i % Tiles::kTileN;
        const bool inside = first_row + r < m && first_col + c < n;
        of_gradient[i] = inside ? gradient[(first_row + r) * n + first_col + c] : 0.0F;
      }
      block.sync();
      for (int r = 0; r < Tiles::kTileM; ++r) {
        PM_UNROLL
        for (int s = 0; s < kResults; ++s) {
          const int at = block.thread() + s * Tiles::kThreads;
          sums[s] += of_x[r * Tiles::kPitch + at / Tiles::kTileN] *
                     of_gradient[r * Tiles::kTileN + at % Tiles::kTileN];
        }
      }
      block.sync();
    }
    constexpr std::int64_t kRun = std::int64_t{Tiles::kTileK} * Tiles::kTileN;
    const std::int64_t begin = kByElements ? 0 : places(down, across, kRun);
    PM_UNROLL
    for (int s = 0; s < kResults; ++s) {
      const int at = block.thread() + s * Tiles::kThreads;
      const std::int64_t at_k = first_k + at / Tiles::kTileN, at_n = first_col + at % Tiles::kTileN;
      if (at_k >= k || at_n >= n) continue;
      atomic_add(array + (kByElements ? places(at_k, at_n, 1) : begin + at), sums[s]);
    }
  }
};

}  // namespace kernels_bench::kernels
