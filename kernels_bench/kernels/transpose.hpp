#pragma once

#include "team.hpp"

namespace kernels_bench::kernels {

/// [batch, rows, cols] to [batch, cols, rows] by square tiles in shared memory: 128 bytes a side,
/// a cache line. Rows of a tile are padded by 4 bytes, so that columns spread over the banks.
template <class T>
struct Transpose {
  static constexpr int kTile = 128 / static_cast<int>(sizeof(T));
  static constexpr int kPitch = kTile + 4 / static_cast<int>(sizeof(T));
  static constexpr int kSharedBytes = kTile * kPitch * static_cast<int>(sizeof(T));
  static constexpr int kThreads = 256, kSteps = kTile * kTile / kThreads;
  const T* in;
  T* out;
  std::int64_t batch, rows, cols;

  PM_HD std::int64_t tiles_down() const { return (rows + kTile - 1) / kTile; }
  PM_HD std::int64_t tiles_across() const { return (cols + kTile - 1) / kTile; }
  PM_HD std::int64_t tiles() const { return batch * tiles_down() * tiles_across(); }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t across = tiles_across(), per_matrix = tiles_down() * across;
    for (std::int64_t task = block.block(); task < tiles(); task += block.blocks()) {
      const std::int64_t matrix = task / per_matrix, tile = task - matrix * per_matrix;
      const std::int64_t down = tile / across;
      const std::int64_t offset = matrix * rows * cols;
      move_tile(block, in + offset, out + offset, down * kTile, (tile - down * across) * kTile);
    }
  }

 private:
  template <class Block>
  PM_HD void move_tile(const Block& block, const T* from, T* to, std::int64_t first_row,
                       std::int64_t first_col) const {
    const int x = block.thread() % kTile, y = block.thread() / kTile;
    const int step = block.threads() / kTile;
    T* tile = reinterpret_cast<T*>(block.shared());
    PM_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      const int row = y + i * step;
      if (first_row + row < rows && first_col + x < cols) {
        tile[row * kPitch + x] = from[(first_row + row) * cols + first_col + x];
      }
    }
    block.sync();
    PM_UNROLL
    for (int i = 0; i < kSteps; ++i) {
      const int col = y + i * step;
      if (first_col + col < cols && first_row + x < rows) {
        to[(first_col + col) * rows + first_row + x] = tile[x * kPitch + col];
      }
    }
    block.sync();  // before the next tile is written there
  }
};

}  // namespace kernels_bench::kernels
