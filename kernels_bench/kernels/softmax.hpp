#pragma once

#include "team.hpp"

/// Softmax over rows; see RowPlan for N, kCached and kWholeBlock.
namespace kernels_bench::kernels {

template <class T, int N, bool kCached, bool kWholeBlock>
struct SoftmaxForward {
  static constexpr int kUnroll = 4, kLoads = cached_loads(N > 1);
  const T* in;
  T* out;
  std::int64_t rows, cols;
  int lanes;

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const Team<kWholeBlock, Block> team{block, lanes};
    for (std::int64_t row = team.index(); row < rows; row += team.count()) {
      if constexpr (kCached) {
        from_registers(team, in + row * cols, out + row * cols);
      } else {
        in_two_passes(team, in + row * cols, out + row * cols);
      }
    }
  }

 private:
  template <class Team>
  PM_HD void from_registers(const Team& team, const T* from, T* to) const {
    CachedRow<N, kLoads> row;
    row.read(team, from, cols, -INFINITY);
    float highest = -INFINITY, sum = 0;
    PM_UNROLL
    for (auto& part : row.values) {
      PM_UNROLL
      for (float value : part) highest = fmaxf(highest, value);
    }
    highest = team.template reduce<Max>(highest);
    PM_UNROLL
    for (auto& part : row.values) {
      PM_UNROLL
      for (float& value : part) {
        value = expf(value - highest);
        sum += value;
      }
    }
    const float scale = 1 / team.template reduce<Sum>(sum);
    PM_UNROLL
    for (auto& part : row.values) {
      PM_UNROLL
      for (float& value : part) value *= scale;
    }
    row.write(team, to, cols);
  }

  /// Maximum and sum in one pass: a higher maximum rescales the sum so far (Milakov and
  /// Gimelshein 2018).
  template <class Team>
  PM_HD void in_two_passes(const Team& team, const T* from, T* to) const {
    float highest = -INFINITY, sum = 0;
    visit_row<N, kUnroll>(team, from, cols, [&](std::int64_t, const float(&x)[N]) {
      float higher = highest;
      PM_UNROLL
      for (int k = 0; k < N; ++k) higher = fmaxf(higher, x[k]);
      sum *= expf(highest - higher);
      highest = higher;
      PM_UNROLL
      for (int k = 0; k < N; ++k) sum += expf(x[k] - highest);
    });
    const float row_highest = team.template reduce<Max>(highest);
    const float scale = 1 / team.template reduce<Sum>(sum * expf(highest - row_highest));
    visit_row<N, kUnroll>(team, from, cols, [&](std::int64_t col, const float(&x)[N]) {
      float y[N];
      PM_UNROLL
      for (int k = 0; k < N; ++k) y[k] = expf(x[k] - row_highest) * scale;
      store(to + col, pack<T>(y));
    });
  }
};

/// dx = y (dy - sum(dy y)), y the forward pass's output.
template <class T, int N, bool kCached, bool kWholeBlock>
struct SoftmaxBackward {
  static constexpr int kUnroll = 4, kLoads = cached_loads(N > 1);
  const T* y;
  const T* dy;
  T* dx;
  std::int64_t rows, cols;
  int lanes;

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const Team<kWholeBlock, Block> team{block, lanes};
    for (std::int64_t row = team.index(); row < rows; row += team.count()) {
      const std::int64_t at = row * cols;
      if constexpr (kCached) {
        from_registers(team, y + at, dy + at, dx + at);
      } else {
        in_two_passes(team, y + at, dy + at, dx + at);
      }
    }
  }

 private:
  template <class Team>
  PM_HD void from_registers(const Team& team, const T* y_row, const T* dy_row, T* dx_row) const {
    CachedRow<N, kLoads> outputs, gradients;
    outputs.read(team, y_row, cols, 0);
    gradients.read(team, dy_row, cols, 0);
    float sum = 0;
    PM_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      PM_UNROLL
      for (int k = 0; k < N; ++k) sum += outputs.values[i][k] * gradients.values[i][k];
    }
    sum = team.template reduce<Sum>(sum);
    PM_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      PM_UNROLL
      for (int k = 0; k < N; ++k) {
        gradients.values[i][k] = outputs.values[i][k] * (gradients.values[i][k] - sum);
      }
    }
    gradients.write(team, dx_row, cols);
  }

  template <class Team>
  PM_HD void in_two_passes(const Team& team, const T* y_row, const T* dy_row, T* dx_row) const {
    float sum = 0;
    visit_rows<N, kUnroll>(team, y_row, dy_row, cols,
                           [&](std::int64_t, const float(&out)[N], const float(&gradient)[N]) {
                             PM_UNROLL
                             for (int k = 0; k < N; ++k) sum += out[k] * gradient[k];
                           });
    sum = team.template reduce<Sum>(sum);
    visit_rows<N, kUnroll>(team, y_row, dy_row, cols,
                           [&](std::int64_t col, const float(&out)[N], const float(&gradient)[N]) {
                             float result[N];
                             PM_UNROLL
                             for (int k = 0; k < N; ++k) result[k] = out[k] * (gradient[k] - sum);
                             store(dx_row + col, pack<T>(result));
                           });
  }
};

}  // namespace kernels_bench::kernels
