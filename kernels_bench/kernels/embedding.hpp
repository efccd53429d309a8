#pragma once

#include "team.hpp"

/// Table-batched embedding bags (sum): weights [tables, rows, dim], indices [tables, batch,
/// pooling], output and its gradient [batch, tables * dim] in fp32. Bag number = table * batch +
/// sample.
namespace kernels_bench::kernels {

/// Bags that a group of lanes may work on at once.
inline constexpr int kMaxBags = 8;

struct EmbeddingShape {
  std::int64_t tables, rows, batch, pooling, dim;
  Divider by_batch, by_lookups;  ///< lookups of one table: batch * pooling

  EmbeddingShape() = default;
  EmbeddingShape(std::int64_t tables_, std::int64_t rows_, std::int64_t batch_,
                 std::int64_t pooling_, std::int64_t dim_)
      : tables(tables_),
        rows(rows_),
        batch(batch_),
        pooling(pooling_),
        dim(dim_),
        by_batch(batch_, tables_ * batch_ + kMaxBags),
        by_lookups(batch_ * pooling_, tables_ * batch_ * pooling_) {}

  PM_HD std::int64_t bags() const { return tables * batch; }
  PM_HD std::int64_t lookups() const { return tables * batch * pooling; }
  PM_HD std::int64_t table_of_bag(std::int64_t bag) const { return by_batch.quotient(bag); }

  /// First element of a bag's result.
  PM_HD std::int64_t output_offset(std::int64_t bag) const {
    std::int64_t table = 0, sample = 0;
    by_batch.split(bag, table, sample);
    return (sample * tables + table) * dim;
  }
};

/// Lanes that share a row of `vectors` vectors.
constexpr int lanes_per_row(std::int64_t vectors) {
  int lanes = 1;
  while (lanes < kMaxLanes && lanes < vectors) lanes *= 2;
  return lanes;
}

/// out[bag] = sum of the bag's rows.
///
/// A group of lanes works on kBags bags at once and on kAhead lookups of each: kBags * kAhead rows
/// are in flight, after their indices, which every lane of the group loads (one broadcast).
template <class T, int N, int kBags, int kAhead>
struct EmbeddingForward {
  const T* weights;
  const std::int64_t* indices;
  float* out;
  EmbeddingShape shape;
  int lanes;

  PM_HD std::int64_t groups() const { return (shape.bags() + kBags - 1) / kBags; }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const Team<false, Block> team{block, lanes};
    for (std::int64_t group = team.index(); group < groups(); group += team.count()) {
      for (std::int64_t column = static_cast<std::int64_t>(team.rank()) * N; column < shape.dim;
           column += static_cast<std::int64_t>(lanes) * N) {
        sum_bags(group * kBags, column);
      }
    }
  }

 private:
  using Index = std::int64_t[kBags][kAhead];

  PM_HD void sum_bags(std::int64_t first_bag, std::int64_t column) const {
    float sum[kBags][N] = {};
    const T* table[kBags];
    PM_UNROLL
    for (int b = 0; b < kBags; ++b) {
      table[b] = weights + shape.table_of_bag(first_bag + b) * shape.rows * shape.dim + column;
    }
    Index index;
    read_indices(first_bag, 0, index);
    for (std::int64_t lookup = 0; lookup < shape.pooling; lookup += kAhead) {
      Vector<T, N> row[kBags][kAhead] = {};
      PM_UNROLL
      for (int b = 0; b < kBags; ++b) {
        PM_UNROLL
        for (int a = 0; a < kAhead; ++a) {
          if (index[b][a] >= 0) row[b][a] = load<N>(table[b] + index[b][a] * shape.dim);
        }
      }
      read_indices(first_bag, lookup + kAhead, index);  // on their way while the rows are
      PM_UNROLL
      for (int b = 0; b < kBags; ++b) {
        PM_UNROLL
        for (int a = 0; a < kAhead; ++a) {
          PM_UNROLL
          for (int k = 0; k < N; ++k) sum[b][k] += to_float(row[b][a].values[k]);
        }
      }
    }
    PM_UNROLL
    for (int b = 0; b < kBags; ++b) {
      const std::int64_t bag = first_bag + b;
      if (bag < shape.bags()) store_floats(out + shape.output_offset(bag) + column, sum[b]);
    }
  }

  /// -1 past the end of a bag.
  PM_HD void read_indices(std::int64_t first_bag, std::int64_t lookup, Index& index) const {
    PM_UNROLL
    for (int b = 0; b < kBags; ++b) {
      PM_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        const bool inside = first_bag + b < shape.bags() && lookup + a < shape.pooling;
        index[b][a] = inside ? indices[(first_bag + b) * shape.pooling + lookup + a] : -1;
      }
    }
  }
};

/// Plain SGD: every looked-up row -= learning_rate * gradient of its bag, by atomic adds.
///
/// Lane i adds elements i, i + lanes, ... of fp32 rows (or pairs of fp16 rows), so that the atomic
/// adds of one instruction are adjacent. N: 2 for pairs, which need an even dim.
template <class T, int N>
struct EmbeddingBackwardSgd {
  T* weights;
  const std::int64_t* indices;
  const float* gradient;
  EmbeddingShape shape;
  float learning_rate;
  int lanes;

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const Team<false, Block> team{block, lanes};
    for (std::int64_t bag = team.index(); bag < shape.bags(); bag += team.count()) {
      T* table = weights + shape.table_of_bag(bag) * shape.rows * shape.dim;
      const float* bag_gradient = gradient + shape.output_offset(bag);
      for (std::int64_t column = static_cast<std::int64_t>(team.rank()) * N; column < shape.dim;
           column += static_cast<std::int64_t>(lanes) * N) {
        float step[N];
        load_floats(bag_gradient + column, step);
        PM_UNROLL
        for (int k = 0; k < N; ++k) step[k] *= -learning_rate;
        for (std::int64_t lookup = 0; lookup < shape.pooling; ++lookup) {
          const std::int64_t row = indices[bag * shape.pooling + lookup];
          add(table + row * shape.dim + column, step);
        }
      }
    }
  }

 private:
  PM_HD static void add(T* to, const float (&step)[N]) {
    if constexpr (N == 2) {
      atomic_add_pair(reinterpret_cast<std::uint32_t*>(to), step[0], step[1]);
    } else {
      atomic_add(to, step[0]);
    }
  }
};

/// Sort input of row-wise Adagrad: the row number over all tables, and which bag asks for it.
struct EmbeddingKeys {
  static constexpr int kUnroll = 4;
  const std::int64_t* indices;
  std::uint32_t* keys;
  std::uint32_t* bags;
  EmbeddingShape shape;
  Divider by_pooling;

  std::int64_t items() const { return shape.lookups(); }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    visit_tiles<kUnroll>(block, shape.lookups(), [&](std::int64_t first) {
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i >= shape.lookups()) break;
        keys[i] =
            static_cast<std::uint32_t>(shape.by_lookups.quotient(i) * shape.rows + indices[i]);
        bags[i] = static_cast<std::uint32_t>(by_pooling.quotient(i));
      }
    });
  }
};

/// Sorted lookups that a group of lanes walks. Long runs of one row are spread over many groups:
/// under a Zipf law the hottest row alone can be a tenth of all lookups.
inline constexpr int kRunChunk = 32;

struct RowWiseAdagrad {
  float learning_rate, epsilon;
};

/// Row-wise Adagrad (as in DLRM): with g the row's gradient summed over its lookups,
///   state += mean(g^2);  row -= learning_rate * g / (sqrt(state) + epsilon).
///
/// Part 1: group c walks sorted lookups [c, c + 1) * kRunChunk. Runs of one row that begin and end
/// inside are complete: the row is updated. The others add what they have to the partial sum of
/// the chunk in which the run begins (zeroed before the launch); part 2 updates those rows.
///
/// A lane holds kParts vectors of the row: dim <= lanes * N * kParts.
template <class T, int N, int kParts>
struct AdagradRuns {
  static constexpr int kAhead = kParts >= 4 ? 1 : 4 / kParts;  ///< gradients in flight
  T* weights;
  float* state;           ///< one per row
  float* partial;         ///< [chunks, dim]
  const float* gradient;  ///< [batch, tables * dim]
  const std::uint32_t* keys;
  const std::uint32_t* bags;
  EmbeddingShape shape;
  RowWiseAdagrad optimizer;
  int lanes;
  bool finish;  ///< part 2

  PM_HD std::int64_t chunks() const { return (shape.lookups() + kRunChunk - 1) / kRunChunk; }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const Team<false, Block> team{block, lanes};
    for (std::int64_t chunk = team.index(); chunk < chunks(); chunk += team.count()) {
      if (finish) {
        finish_run(team, chunk);
      } else {
        walk_chunk(team, chunk);
      }
    }
  }

 private:
  using Part = float[kParts][N];

  template <class Team>
  PM_HD void walk_chunk(const Team& team, std::int64_t chunk) const {
    const std::int64_t begin = chunk * kRunChunk;
    const std::int64_t end =
        begin + kRunChunk < shape.lookups() ? begin + kRunChunk : shape.lookups();
    Part sum = {};
    bool whole = begin == 0 || keys[begin - 1] != keys[begin];  // the run begins in this chunk
    for (std::int64_t i = begin; i < end; i += kAhead) {
      Part ahead[kAhead] = {};
      std::uint32_t key[kAhead + 1] = {};
      PM_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        if (i + a >= end) break;
        key[a] = keys[i + a];
        read(team, gradient + shape.output_offset(bags[i + a]), ahead[a]);
      }
      // The key after the last, to see whether its run goes on.
      const std::int64_t next = i + kAhead < end ? i + kAhead : end;
      const bool goes_on = next < shape.lookups() && keys[next] == keys[next - 1];
      PM_UNROLL
      for (int a = 0; a < kAhead; ++a) {
        if (i + a >= end) break;
        add(ahead[a], sum);
        const bool last = i + a + 1 == next;
        if (last ? goes_on : key[a + 1] == key[a]) continue;
        close_run(team, chunk, key[a], whole, sum);
        clear(sum);
        whole = true;
      }
    }
    const bool open = end < shape.lookups() && keys[end] == keys[end - 1];
    if (open) close_run(team, chunk, keys[end - 1], false, sum);
  }

  template <class Team>
  PM_HD void close_run(const Team& team, std::int64_t chunk, std::uint32_t key, bool whole,
                       const Part& sum) const {
    if (whole) {
      update(team, key, sum);
      return;
    }
    float* to = partial + first_chunk_of(key, chunk) * shape.dim;
    PM_UNROLL
    for (int p = 0; p < kParts; ++p) {
      const std::int64_t at = column(team, p);
      if (at >= shape.dim) break;
      PM_UNROLL
      for (int k = 0; k < N; ++k) atomic_add(to + at + k, sum[p][k]);
    }
  }

  template <class Team>
  PM_HD void finish_run(const Team& team, std::int64_t chunk) const {
    const std::int64_t end = (chunk + 1) * kRunChunk;
    if (end >= shape.lookups() || keys[end] != keys[end - 1]) return;
    if (first_chunk_of(keys[end], chunk) != chunk) return;
    Part sum = {};
    read(team, partial + chunk * shape.dim, sum);
    update(team, keys[end], sum);
  }

  /// Chunk of the first lookup with this key, by binary search up to `chunk`.
  PM_HD std::int64_t first_chunk_of(std::uint32_t key, std::int64_t chunk) const {
    std::int64_t low = 0, high = chunk * kRunChunk;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (keys[middle] < key) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    // `high` was only a bound: in the middle of this chunk at the latest.
    return low / kRunChunk;
  }

  template <class Team>
  PM_HD void update(const Team& team, std::uint32_t key, const Part& sum) const {
    T* row = weights + static_cast<std::int64_t>(key) * shape.dim;
    Vector<T, N> old[kParts] = {};
    PM_UNROLL
    for (int p = 0; p < kParts; ++p) {
      if (column(team, p) < shape.dim) old[p] = load<N>(row + column(team, p));
    }
    const float old_state = state[key];
    float squares = 0;
    PM_UNROLL
    for (int p = 0; p < kParts; ++p) {
      PM_UNROLL
      for (int k = 0; k < N; ++k) squares += sum[p][k] * sum[p][k];
    }
    squares = team.template reduce<Sum>(squares);  // also: every lane has read the state
    const float new_state = old_state + squares / static_cast<float>(shape.dim);
    const float rate = optimizer.learning_rate / (sqrtf(new_state) + optimizer.epsilon);
    PM_UNROLL
    for (int p = 0; p < kParts; ++p) {
      if (column(team, p) >= shape.dim) break;
      float values[N];
      unpack(old[p], values);
      PM_UNROLL
      for (int k = 0; k < N; ++k) values[k] -= rate * sum[p][k];
      store(row + column(team, p), pack<T>(values));
    }
    if (team.rank() == 0) state[key] = new_state;
  }

  /// Zeros past the end of a row.
  template <class Team>
  PM_HD void read(const Team& team, const float* from, Part& to) const {
    PM_UNROLL
    for (int p = 0; p < kParts; ++p) {
      PM_UNROLL
      for (int k = 0; k < N; ++k) to[p][k] = 0;
      if (column(team, p) < shape.dim) load_floats(from + column(team, p), to[p]);
    }
  }

  PM_HD static void add(const Part& from, Part& to) {
    PM_UNROLL
    for (int p = 0; p < kParts; ++p) {
      PM_UNROLL
      for (int k = 0; k < N; ++k) to[p][k] += from[p][k];
    }
  }

  PM_HD static void clear(Part& part) {
    PM_UNROLL
    for (int p = 0; p < kParts; ++p) {
      PM_UNROLL
      for (int k = 0; k < N; ++k) part[p][k] = 0;
    }
  }

  template <class Team>
  PM_HD std::int64_t column(const Team& team, int part) const {
    return (static_cast<std::int64_t>(part) * lanes + team.rank()) * N;
  }
};

}  // namespace kernels_bench::kernels
