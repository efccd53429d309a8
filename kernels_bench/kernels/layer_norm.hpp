#pragma once

#include "team.hpp"

/// Layer norm over rows with weight and bias of the tensor's type; see RowPlan for N, kCached and
/// kWholeBlock.
namespace kernels_bench::kernels {

inline constexpr float kNormEpsilon = 1e-5F;

/// y = (x - mean) rstd weight + bias; mean and rstd are kept for the backward pass.
template <class T, int N, bool kCached, bool kWholeBlock>
struct LayerNormForward {
  static constexpr int kUnroll = 4, kLoads = cached_loads(N > 1);
  const T* in;
  const T* weight;
  const T* bias;
  T* out;
  float* mean;
  float* rstd;
  std::int64_t rows, cols;
  int lanes;

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const Team<kWholeBlock, Block> team{block, lanes};
    for (std::int64_t row = team.index(); row < rows; row += team.count()) {
      if constexpr (kCached) {
        from_registers(team, row);
      } else {
        in_two_passes(team, row);
      }
    }
  }

 private:
  template <class Team>
  PM_HD void from_registers(const Team& team, std::int64_t row) const {
    CachedRow<N, kLoads> cached;
    cached.read(team, in + row * cols, cols, 0);
    float sum = 0, squares = 0;
    PM_UNROLL
    for (auto& part : cached.values) {
      PM_UNROLL
      for (float value : part) sum += value;
    }
    const float average = team.template reduce<Sum>(sum) / static_cast<float>(cols);
    PM_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      if (cached.column(team, i) >= cols) break;
      PM_UNROLL
      for (float value : cached.values[i]) squares += (value - average) * (value - average);
    }
    const float variance = team.template reduce<Sum>(squares) / static_cast<float>(cols);
    const float scale = keep(team, row, average, variance);
    PM_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const std::int64_t col = cached.column(team, i);
      if (col < cols) write(row, col, cached.values[i], average, scale);
    }
  }

  /// Variance from sums of (x - first element of the row), so that a large mean cancels nothing.
  template <class Team>
  PM_HD void in_two_passes(const Team& team, std::int64_t row) const {
    const T* from = in + row * cols;
    const float shift = to_float(from[0]);
    float sum = 0, squares = 0;
    visit_row<N, kUnroll>(team, from, cols, [&](std::int64_t, const float(&x)[N]) {
      PM_UNROLL
      for (int k = 0; k < N; ++k) {
        sum += x[k] - shift;
        squares += (x[k] - shift) * (x[k] - shift);
      }
    });
    const float count = static_cast<float>(cols);
    const float offset = team.template reduce<Sum>(sum) / count;
    const float variance = team.template reduce<Sum>(squares) / count - offset * offset;
    const float average = shift + offset;
    const float scale = keep(team, row, average, variance);
    visit_row<N, kUnroll>(team, from, cols, [&](std::int64_t col, const float(&x)[N]) {
      write(row, col, x, average, scale);
    });
  }

  template <class Team>
  PM_HD float keep(const Team& team, std::int64_t row, float average, float variance) const {
    const float scale = 1 / sqrtf(fmaxf(variance, 0) + kNormEpsilon);
    if (team.rank() == 0) {
      mean[row] = average;
      rstd[row] = scale;
    }
    return scale;
  }

  PM_HD void write(std::int64_t row, std::int64_t col, const float (&x)[N], float average,
                   float scale) const {
    float w[N], b[N], y[N];
    unpack(load<N>(weight + col), w);
    unpack(load<N>(bias + col), b);
    PM_UNROLL
    for (int k = 0; k < N; ++k) y[k] = (x[k] - average) * scale * w[k] + b[k];
    store(out + row * cols + col, pack<T>(y));
  }
};

/// The input's gradient: with g = dy weight and xhat = (x - mean) rstd,
///   dx = rstd (g - mean(g) - xhat mean(g xhat)).
template <class T, int N, bool kCached, bool kWholeBlock>
struct LayerNormBackward {
  static constexpr int kUnroll = 4, kLoads = cached_loads(N > 1);
  const T* in;
  const T* dy;
  const T* weight;
  const float* mean;
  const float* rstd;
  T* dx;
  std::int64_t rows, cols;
  int lanes;

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const Team<kWholeBlock, Block> team{block, lanes};
    for (std::int64_t row = team.index(); row < rows; row += team.count()) {
      if constexpr (kCached) {
        from_registers(team, row);
      } else {
        in_two_passes(team, row);
      }
    }
  }

 private:
  template <class Team>
  PM_HD void from_registers(const Team& team, std::int64_t row) const {
    const float average = mean[row], scale = rstd[row];
    CachedRow<N, kLoads> x, g;
    x.read(team, in + row * cols, cols, 0);
    g.read(team, dy + row * cols, cols, 0);
    float sum = 0, product = 0;
    PM_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const std::int64_t col = x.column(team, i);
      if (col < cols) accumulate(col, average, scale, x.values[i], g.values[i], sum, product);
    }
    sum = team.template reduce<Sum>(sum) / static_cast<float>(cols);
    product = team.template reduce<Sum>(product) / static_cast<float>(cols);
    PM_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const std::int64_t col = x.column(team, i);
      if (col >= cols) break;
      float result[N];
      PM_UNROLL
      for (int k = 0; k < N; ++k) {
        result[k] = scale * (g.values[i][k] - sum - x.values[i][k] * product);
      }
      store(dx + row * cols + col, pack<T>(result));
    }
  }

  template <class Team>
  PM_HD void in_two_passes(const Team& team, std::int64_t row) const {
    const float average = mean[row], scale = rstd[row];
    const T *x_row = in + row * cols, *dy_row = dy + row * cols;
    float sum = 0, product = 0;
    visit_rows<N, kUnroll>(team, x_row, dy_row, cols,
                           [&](std::int64_t col, float(&x)[N], float(&g)[N]) {
                             accumulate(col, average, scale, x, g, sum, product);
                           });
    sum = team.template reduce<Sum>(sum) / static_cast<float>(cols);
    product = team.template reduce<Sum>(product) / static_cast<float>(cols);
    visit_rows<N, kUnroll>(team, x_row, dy_row, cols,
                           [&](std::int64_t col, float(&x)[N], float(&g)[N]) {
                             float ignored_sum = 0, ignored_product = 0, result[N];
                             accumulate(col, average, scale, x, g, ignored_sum, ignored_product);
                             PM_UNROLL
                             for (int k = 0; k < N; ++k)
                               result[k] = scale * (g[k] - sum - x[k] * product);
                             store(dx + row * cols + col, pack<T>(result));
                           });
  }

  /// Turns x into xhat and dy into g, and adds them up.
  PM_HD void accumulate(std::int64_t col, float average, float scale, float (&x)[N], float (&g)[N],
                        float& sum, float& product) const {
    float w[N];
    unpack(load<N>(weight + col), w);
    PM_UNROLL
    for (int k = 0; k < N; ++k) {
      x[k] = (x[k] - average) * scale;
      g[k] *= w[k];
      sum += g[k];
      product += g[k] * x[k];
    }
  }
};

}  // namespace kernels_bench::kernels
