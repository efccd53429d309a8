#pragma once

#include "portability.hpp"

/// Threads that work on one row together, and how they walk it.
///
/// A body is a struct of parameters whose operator() takes a Block: the GPU's thread block, or in
/// tests one thread per CUDA thread. A Block has thread(), threads(), block(), blocks(),
/// warp_size(), sync(), shared() (float aligned to 16 bytes) and shuffle_xor(value, mask, width),
/// which exchanges within groups of `width` lanes that all take part.
namespace kernels_bench::kernels {

/// Group size of lanes that divides the warp of every GPU (32 or 64).
inline constexpr int kMaxLanes = 32;

struct Sum {
  static constexpr float kIdentity = 0;
  PM_HD float operator()(float a, float b) const { return a + b; }
};

struct Max {
  static constexpr float kIdentity = -INFINITY;
  PM_HD float operator()(float a, float b) const { return fmaxf(a, b); }
};

/// The same result in every lane of a group; `lanes` is a power of two.
template <class Op, class Block>
PM_HD inline float reduce_lanes(const Block& block, float value, int lanes) {
  for (int mask = lanes / 2; mask > 0; mask /= 2) {
    value = Op()(value, block.shuffle_xor(value, mask, lanes));
  }
  return value;
}

/// The same result in every thread of a block of whole warps. Uses a float of shared memory per
/// warp.
template <class Op, class Block>
PM_HD inline float reduce_block(const Block& block, float value) {
  const int warp_size = block.warp_size(), warps = block.threads() / warp_size;
  value = reduce_lanes<Op>(block, value, warp_size);
  if (warps == 1) return value;
  float* partial = block.shared();
  if (block.thread() % warp_size == 0) partial[block.thread() / warp_size] = value;
  block.sync();
  value = partial[0];
  for (int warp = 1; warp < warps; ++warp) value = Op()(value, partial[warp]);
  block.sync();  // the next reduction writes there again
  return value;
}

/// Shared memory of reduce_block for the smallest warp there is.
constexpr int reduce_block_bytes(int threads) {
  return threads / kMaxLanes * static_cast<int>(sizeof(float));
}

/// `lanes` neighbouring threads, or the block, per row.
template <bool kWholeBlock, class Block>
struct Team {
  const Block& block;
  int lanes;

  PM_HD int size() const { return kWholeBlock ? block.threads() : lanes; }
  PM_HD int rank() const { return kWholeBlock ? block.thread() : block.thread() & (lanes - 1); }
  PM_HD std::int64_t index() const {
    if constexpr (kWholeBlock) return block.block();
    return block.block() * (block.threads() / lanes) + block.thread() / lanes;
  }
  PM_HD std::int64_t count() const {
    if constexpr (kWholeBlock) return block.blocks();
    return block.blocks() * (block.threads() / lanes);
  }
  template <class Op>
  PM_HD float reduce(float value) const {
    if constexpr (kWholeBlock) return reduce_block<Op>(block, value);
    return reduce_lanes<Op>(block, value, lanes);
  }
};

/// Launch shape of a kernel over rows of `cols` elements.
struct RowPlan {
  bool widest = false;       ///< loads of 16 bytes: `cols` is a multiple of them
  bool whole_block = false;  ///< else `lanes` threads per row
  bool cached = false;       ///< a row fits into the registers of its team
  int lanes = 1, threads = 256;
};

/// Loads that a thread keeps in registers.
constexpr int cached_loads(bool widest) { return widest ? 4 : 8; }

/// Lanes for rows that a few threads can hold, else the smallest block that can, else 512 threads
/// that read the row twice. Assumes tensors that begin at a multiple of 16 bytes.
inline RowPlan plan_rows(std::int64_t cols, int element_bytes) {
  constexpr int kMaxThreads = 512;  // 128 registers each, without spilling
  RowPlan plan;
  const int widest = 16 / element_bytes;
  plan.widest = cols % widest == 0;
  const int loads = cached_loads(plan.widest);
  const std::int64_t vectors = plan.widest ? cols / widest : cols;
  while (plan.lanes < kMaxLanes && plan.lanes < vectors) plan.lanes *= 2;
  plan.whole_block = vectors > static_cast<std::int64_t>(kMaxLanes) * loads;
  plan.cached = vectors <= static_cast<std::int64_t>(kMaxThreads) * loads;
  if (!plan.whole_block) return plan;
  plan.threads = plan.cached ? 128 : 512;
  while (plan.cached && static_cast<std::int64_t>(plan.threads) * loads < vectors) {
    plan.threads *= 2;
  }
  return plan;
}

/// Walks a row as vectors of N, kUnroll loads in flight: visit(column, floats).
template <int N, int kUnroll, class T, class Team, class Visit>
PM_HD inline void visit_row(const Team& team, const T* row, std::int64_t cols, Visit visit) {
  const std::int64_t step = static_cast<std::int64_t>(team.size()) * N;
  for (std::int64_t first = static_cast<std::int64_t>(team.rank()) * N; first < cols;
       first += step * kUnroll) {
    Vector<T, N> loaded[kUnroll] = {};
    PM_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * step < cols) loaded[u] = load<N>(row + first + u * step);
    }
    PM_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * step >= cols) break;
      float values[N];
      unpack(loaded[u], values);
      visit(first + u * step, values);
    }
  }
}

/// The same for two tensors of one shape: visit(column, floats, floats).
template <int N, int kUnroll, class T, class Team, class Visit>
PM_HD inline void visit_rows(const Team& team, const T* row_a, const T* row_b, std::int64_t cols,
                             Visit visit) {
  const std::int64_t step = static_cast<std::int64_t>(team.size()) * N;
  for (std::int64_t first = static_cast<std::int64_t>(team.rank()) * N; first < cols;
       first += step * kUnroll) {
    Vector<T, N> loaded_a[kUnroll] = {}, loaded_b[kUnroll] = {};
    PM_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * step >= cols) break;
      loaded_a[u] = load<N>(row_a + first + u * step);
      loaded_b[u] = load<N>(row_b + first + u * step);
    }
    PM_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      if (first + u * step >= cols) break;
      float a[N], b[N];
      unpack(loaded_a[u], a);
      unpack(loaded_b[u], b);
      visit(first + u * step, a, b);
    }
  }
}

/// A row in the registers of its team; elements past its end stay `filler`.
template <int N, int kLoads>
struct CachedRow {
  float values[kLoads][N];

  template <class T, class Team>
  PM_HD void read(const Team& team, const T* row, std::int64_t cols, float filler) {
    Vector<T, N> loaded[kLoads] = {};
    PM_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const std::int64_t col = column(team, i);
      if (col < cols) loaded[i] = load<N>(row + col);
    }
    PM_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      const bool inside = column(team, i) < cols;
      PM_UNROLL
      for (int k = 0; k < N; ++k) values[i][k] = inside ? to_float(loaded[i].values[k]) : filler;
    }
  }

  template <class T, class Team>
  PM_HD void write(const Team& team, T* row, std::int64_t cols) const {
    PM_UNROLL
    for (int i = 0; i < kLoads; ++i) {
      if (column(team, i) < cols) store(row + column(team, i), pack<T>(values[i]));
    }
  }

  template <class Team>
  PM_HD static std::int64_t column(const Team& team, int i) {
    return (static_cast<std::int64_t>(i) * team.size() + team.rank()) * N;
  }
};

/// Tiles of threads * kUnroll items, one item per thread and step: visit(first item). Bodies
/// handle items first, first + threads, ... below the count.
template <int kUnroll, class Block, class Visit>
PM_HD inline void visit_tiles(const Block& block, std::int64_t count, Visit visit) {
  const std::int64_t tile = static_cast<std::int64_t>(block.threads()) * kUnroll;
  for (std::int64_t first = block.block() * tile; first < count; first += block.blocks() * tile) {
    visit(first + block.thread());
  }
}

}  // namespace kernels_bench::kernels
