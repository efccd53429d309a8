#pragma once

#include "team.hpp"

namespace kernels_bench::kernels {

/// 16 bytes per load, four loads in flight per thread; both pointers aligned to 16 bytes.
struct Copy {
  static constexpr int kUnroll = 4;
  const std::uint8_t* in;
  std::uint8_t* out;
  std::int64_t bytes;

  std::int64_t items() const { return ceil_divide(bytes, 16); }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t vectors = bytes / 16;
    visit_tiles<kUnroll>(block, vectors, [&](std::int64_t first) {
      Vector<std::uint32_t, 4> loaded[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i < vectors) loaded[u] = load<4>(reinterpret_cast<const std::uint32_t*>(in) + i * 4);
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i < vectors) store(reinterpret_cast<std::uint32_t*>(out) + i * 4, loaded[u]);
      }
    });
    if (block.block() != 0) return;
    for (std::int64_t i = vectors * 16 + block.thread(); i < bytes; i += block.threads()) {
      out[i] = in[i];
    }
  }
};

/// Rows of `words_per_row` words out of a tensor of twice that pitch into one block.
/// Word: the widest type that divides a row.
template <class Word>
struct StridedCopy {
  static constexpr int kUnroll = 4;
  const Word* in;
  Word* out;
  std::int64_t words;  ///< words of the result
  std::int64_t words_per_row;
  Divider by_row;

  std::int64_t items() const { return words; }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    visit_tiles<kUnroll>(block, words, [&](std::int64_t first) {
      Word loaded[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i < words) loaded[u] = in[i + by_row.quotient(i) * words_per_row];
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i < words) out[i] = loaded[u];
      }
    });
  }
};

/// How often ReadSum reads its working set: at least 1 GiB in all, so that small sets take long
/// enough to time.
constexpr std::int64_t read_passes(std::int64_t bytes) {
  return ceil_divide(std::int64_t{1} << 30, bytes < 1 ? 1 : bytes);
}

/// Reads `vectors` * 16 bytes `passes` times past the L1 cache; out[block] is the sum of the
/// 32-bit words that the block saw, modulo 2^32.
///
/// Blocks take tiles in turn over all passes, so that all work however small the set is; each pass
/// begins one tile further on, so that a block does not find its last tile in its SM's cache.
struct ReadSum {
  static constexpr int kUnroll = 4;
  const std::uint32_t* in;
  std::uint32_t* out;
  std::int64_t vectors, passes;

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t size = static_cast<std::int64_t>(block.threads()) * kUnroll;
    const std::int64_t tiles = (vectors + size - 1) / size;
    const std::int64_t step_passes = block.blocks() / tiles, step_tiles = block.blocks() % tiles;
    std::int64_t pass = block.block() / tiles, tile = block.block() % tiles;
    std::uint32_t sum = 0;
    while (pass < passes) {
      sum += sum_tile(block, (tile + pass) % tiles * size);
      pass += step_passes;
      tile += step_tiles;
      if (tile >= tiles) {
        tile -= tiles;
        ++pass;
      }
    }
    // Through shared memory: shuffles here are of floats.
    auto* sums = reinterpret_cast<std::uint32_t*>(block.shared());
    sums[block.thread()] = sum;
    block.sync();
    if (block.thread() != 0) return;
    for (int thread = 1; thread < block.threads(); ++thread) sum += sums[thread];
    out[block.block()] = sum;
  }

  static constexpr int shared_bytes(int threads) { return threads * 4; }

 private:
  template <class Block>
  PM_HD std::uint32_t sum_tile(const Block& block, std::int64_t begin) const {
    Vector<std::uint32_t, 4> loaded[kUnroll] = {};
    PM_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      const std::int64_t i =
          begin + block.thread() + static_cast<std::int64_t>(u) * block.threads();
      if (i < vectors) loaded[u] = load_from_l2(in + i * 4);
    }
    std::uint32_t sum = 0;
    PM_UNROLL
    for (int u = 0; u < kUnroll; ++u) {
      for (const std::uint32_t word : loaded[u].values) sum += word;
    }
    return sum;
  }
};

}  // namespace kernels_bench::kernels
