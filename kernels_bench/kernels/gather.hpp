#pragma once

#include "team.hpp"

namespace kernels_bench::kernels {

/// out[i, :] = table[indices[i], :]; N divides a row.
template <class T, int N>
struct Gather {
  static constexpr int kUnroll = 4;
  const T* table;
  const std::int64_t* indices;
  T* out;
  std::int64_t count, row_vectors;  ///< vectors of N per row
  Divider by_row;

  std::int64_t items() const { return count * row_vectors; }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t vectors = count * row_vectors;
    visit_tiles<kUnroll>(block, vectors, [&](std::int64_t first) {
      std::int64_t source[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i >= vectors) break;
        std::int64_t row = 0, col = 0;
        by_row.split(i, row, col);
        source[u] = indices[row] * row_vectors + col;
      }
      Vector<T, N> loaded[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        if (first + static_cast<std::int64_t>(u) * block.threads() >= vectors) break;
        loaded[u] = load<N>(table + source[u] * N);
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i < vectors) store(out + i * N, loaded[u]);
      }
    });
  }
};

/// table[indices[i], :] += in[i, :], atomically: one element per thread and step, so that the
/// atomic adds of one instruction are adjacent.
struct ScatterAdd {
  static constexpr int kUnroll = 4;
  const float* in;
  const std::int64_t* indices;
  float* table;
  std::int64_t count, cols;
  Divider by_cols;

  std::int64_t items() const { return count * cols; }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t elements = count * cols;
    visit_tiles<kUnroll>(block, elements, [&](std::int64_t first) {
      float value[kUnroll] = {};
      std::int64_t target[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i >= elements) break;
        std::int64_t row = 0, col = 0;
        by_cols.split(i, row, col);
        value[u] = in[i];
        target[u] = indices[row] * cols + col;
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        if (first + static_cast<std::int64_t>(u) * block.threads() >= elements) break;
        atomic_add(table + target[u], value[u]);
      }
    });
  }
};

}  // namespace kernels_bench::kernels
