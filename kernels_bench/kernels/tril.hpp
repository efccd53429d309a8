#pragma once

#include "team.hpp"

/// Strictly lower triangles of square matrices, packed row by row: (1,0), (2,0), (2,1), (3,0), ...
namespace kernels_bench::kernels {

constexpr std::int64_t triangle_size(std::int64_t features) {
  return features * (features - 1) / 2;
}

/// Row of the triangle's element `index`: the largest i with i (i - 1) / 2 <= index.
PM_HD inline std::int64_t triangle_row(std::int64_t index) {
  auto row = static_cast<std::int64_t>((1 + sqrtf(1 + 8 * static_cast<float>(index))) / 2);
  while (row * (row - 1) / 2 > index) --row;  // fp32 may be off by a few for large matrices
  while (row * (row + 1) / 2 <= index) ++row;
  return row;
}

template <class T>
struct TrilForward {
  static constexpr int kUnroll = 4;
  const T* in;  ///< [batch, features, features]
  T* out;       ///< [batch, triangle]
  std::int64_t batch, features, triangle;
  Divider by_triangle;

  std::int64_t items() const { return batch * triangle; }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t count = batch * triangle;
    visit_tiles<kUnroll>(block, count, [&](std::int64_t first) {
      T loaded[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i < count) loaded[u] = in[source(i)];
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i < count) out[i] = loaded[u];
      }
    });
  }

 private:
  PM_HD std::int64_t source(std::int64_t element) const {
    std::int64_t matrix = 0, index = 0;
    by_triangle.split(element, matrix, index);
    const std::int64_t row = triangle_row(index), col = index - row * (row - 1) / 2;
    return (matrix * features + row) * features + col;
  }
};

/// Writes every element of the matrices: the packed gradient, zeros elsewhere.
template <class T>
struct TrilBackward {
  static constexpr int kUnroll = 4;
  const T* dy;  ///< [batch, triangle]
  T* dx;        ///< [batch, features, features]
  std::int64_t batch, features, triangle;
  Divider by_matrix, by_row;

  std::int64_t items() const { return batch * features * features; }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t count = batch * features * features;
    visit_tiles<kUnroll>(block, count, [&](std::int64_t first) {
      T loaded[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i < count) loaded[u] = gradient(i);
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i < count) dx[i] = loaded[u];
      }
    });
  }

 private:
  PM_HD T gradient(std::int64_t element) const {
    std::int64_t matrix = 0, within = 0, row = 0, col = 0;
    by_matrix.split(element, matrix, within);
    by_row.split(within, row, col);
    if (col >= row) return from_float<T>(0);
    return dy[matrix * triangle + row * (row - 1) / 2 + col];
  }
};

}  // namespace kernels_bench::kernels
