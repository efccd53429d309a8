#pragma once

#include "team.hpp"

namespace kernels_bench::kernels {

/// [rows, cols_a] and [rows, cols_b] side by side; N divides both.
template <class T, int N>
struct Concat {
  static constexpr int kUnroll = 4;
  const T* a;
  const T* b;
  T* out;
  std::int64_t rows, vectors_a, vectors_b;  ///< vectors of N per row
  Divider by_row;                           ///< vectors_a + vectors_b

  std::int64_t items() const { return rows * (vectors_a + vectors_b); }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t count = rows * (vectors_a + vectors_b);
    visit_tiles<kUnroll>(block, count, [&](std::int64_t first) {
      Vector<T, N> loaded[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i < count) loaded[u] = load<N>(source(i));
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i < count) store(out + i * N, loaded[u]);
      }
    });
  }

 private:
  PM_HD const T* source(std::int64_t vector) const {
    std::int64_t row = 0, col = 0;
    by_row.split(vector, row, col);
    if (col < vectors_a) return a + (row * vectors_a + col) * N;
    return b + (row * vectors_b + col - vectors_a) * N;
  }
};

}  // namespace kernels_bench::kernels
