#pragma once

#include "team.hpp"

namespace kernels_bench::kernels {

/// out[row, part] = Op over the part's columns of in[row, :]; `parts` > 1 where there are too few
/// rows to fill the device, and a second launch combines the parts.
template <class Op, class In, class Out, int N, bool kWholeBlock>
struct ReduceRows {
  static constexpr int kUnroll = 4;
  const In* in;
  Out* out;
  std::int64_t rows, cols;
  std::int64_t parts, part_cols;  ///< part_cols: a multiple of N
  int lanes;

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const Team<kWholeBlock, Block> team{block, lanes};
    for (std::int64_t task = team.index(); task < rows * parts; task += team.count()) {
      const std::int64_t row = task / parts, begin = (task - row * parts) * part_cols;
      const std::int64_t left = cols - begin, count = left < part_cols ? left : part_cols;
      float value = Op::kIdentity;
      visit_row<N, kUnroll>(team, in + row * cols + begin, count,
                            [&](std::int64_t, const float(&x)[N]) {
                              PM_UNROLL
                              for (int k = 0; k < N; ++k) value = Op()(value, x[k]);
                            });
      value = team.template reduce<Op>(value);
      if (team.rank() == 0) out[task] = from_float<Out>(value);
    }
  }
};

/// out[part, col] = Op over the part's rows of in[:, col]: the outer axis. A thread owns N
/// neighbouring columns; `lanes_x` threads cover them and threads / lanes_x the rows.
template <class Op, class In, class Out, int N>
struct ReduceColumns {
  static constexpr int kUnroll = 4;
  const In* in;
  Out* out;
  std::int64_t rows, cols;
  std::int64_t parts, part_rows;
  int lanes_x;

  static constexpr int shared_bytes(int threads) {
    return threads * N * static_cast<int>(sizeof(float));
  }
  std::int64_t strips() const { return ceil_divide(cols, static_cast<std::int64_t>(lanes_x) * N); }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t strip = static_cast<std::int64_t>(lanes_x) * N;
    const std::int64_t num_strips = (cols + strip - 1) / strip;
    for (std::int64_t task = block.block(); task < num_strips * parts; task += block.blocks()) {
      const std::int64_t part = task / num_strips;
      reduce_strip(block, part, (task - part * num_strips) * strip);
    }
  }

 private:
  template <class Block>
  PM_HD void reduce_strip(const Block& block, std::int64_t part, std::int64_t first_col) const {
    const int lane = block.thread() % lanes_x, level = block.thread() / lanes_x;
    const int levels = block.threads() / lanes_x;
    const std::int64_t col = first_col + static_cast<std::int64_t>(lane) * N;
    const std::int64_t end = (part + 1) * part_rows < rows ? (part + 1) * part_rows : rows;
    float value[N];
    PM_UNROLL
    for (int k = 0; k < N; ++k) value[k] = Op::kIdentity;
    if (col < cols) reduce_rows(part * part_rows + level, end, levels, col, value);

    float* shared = block.shared();
    PM_UNROLL
    for (int k = 0; k < N; ++k) shared[k * block.threads() + block.thread()] = value[k];
    block.sync();
    if (level == 0 && col < cols) {
      for (int other = 1; other < levels; ++other) {
        PM_UNROLL
        for (int k = 0; k < N; ++k) {
          value[k] = Op()(value[k], shared[k * block.threads() + other * lanes_x + lane]);
        }
      }
      store(out + part * cols + col, pack<Out>(value));
    }
    block.sync();  // before the next strip writes there
  }

  PM_HD void reduce_rows(std::int64_t begin, std::int64_t end, int step, std::int64_t col,
                         float (&value)[N]) const {
    for (std::int64_t row = begin; row < end; row += static_cast<std::int64_t>(step) * kUnroll) {
      Vector<In, N> loaded[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t at = row + static_cast<std::int64_t>(u) * step;
        if (at < end) loaded[u] = load<N>(in + at * cols + col);
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        if (row + static_cast<std::int64_t>(u) * step >= end) break;
        PM_UNROLL
        for (int k = 0; k < N; ++k) value[k] = Op()(value[k], to_float(loaded[u].values[k]));
      }
    }
  }
};

}  // namespace kernels_bench::kernels
