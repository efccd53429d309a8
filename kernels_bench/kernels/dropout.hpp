#pragma once

#include "team.hpp"

namespace kernels_bench::kernels {

/// Four random words of a counter (Salmon et al. 2011, Philox4x32-10).
PM_HD inline Vector<std::uint32_t, 4> philox(std::uint64_t key, std::uint64_t counter) {
  std::uint32_t word[4] = {static_cast<std::uint32_t>(counter),
                           static_cast<std::uint32_t>(counter >> 32), 0, 0};
  std::uint32_t low = static_cast<std::uint32_t>(key);
  std::uint32_t high = static_cast<std::uint32_t>(key >> 32);
  PM_UNROLL
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * word[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * word[2];
    word[0] = static_cast<std::uint32_t>(b >> 32) ^ word[1] ^ low;
    word[2] = static_cast<std::uint32_t>(a >> 32) ^ word[3] ^ high;
    word[1] = static_cast<std::uint32_t>(b);
    word[3] = static_cast<std::uint32_t>(a);
    low += 0x9E3779B9U;
    high += 0xBB67AE85U;
  }
  return {{word[0], word[1], word[2], word[3]}};
}

/// p = 0.5: kept elements are doubled.
inline constexpr std::uint32_t kDropBelow = 0x80000000U;
inline constexpr float kDropoutScale = 2;

/// Element i is kept where word i % 4 of philox(seed, i / 4) is at least kDropBelow; mask: 1 kept,
/// 0 dropped.
template <class T>
struct DropoutForward {
  static constexpr int kVector = kWidest<T>, kUnroll = 2;
  const T* in;
  T* out;
  std::uint8_t* mask;
  std::int64_t elements;
  std::uint64_t seed;

  std::int64_t items() const { return ceil_divide(elements, kVector); }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t vectors = elements / kVector;
    visit_tiles<kUnroll>(block, vectors, [&](std::int64_t first) {
      Vector<T, kVector> loaded[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i < vectors) loaded[u] = load<kVector>(in + i * kVector);
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i < vectors) drop(i, loaded[u]);
      }
    });
    if (block.block() != 0) return;
    for (std::int64_t i = vectors * kVector + block.thread(); i < elements; i += block.threads()) {
      const auto random = philox(seed, static_cast<std::uint64_t>(i / 4));
      const bool keep = random.values[i % 4] >= kDropBelow;
      out[i] = from_float<T>(keep ? to_float(in[i]) * kDropoutScale : 0);
      mask[i] = keep ? 1 : 0;
    }
  }

 private:
  PM_HD void drop(std::int64_t index, const Vector<T, kVector>& x) const {
    Vector<T, kVector> result;
    Vector<std::uint8_t, kVector> kept;
    PM_UNROLL
    for (int part = 0; part < kVector / 4; ++part) {
      const auto random = philox(seed, static_cast<std::uint64_t>(index * (kVector / 4) + part));
      PM_UNROLL
      for (int k = 0; k < 4; ++k) {
        const bool keep = random.values[k] >= kDropBelow;
        const float value = to_float(x.values[part * 4 + k]) * kDropoutScale;
        result.values[part * 4 + k] = from_float<T>(keep ? value : 0);
        kept.values[part * 4 + k] = keep ? 1 : 0;
      }
    }
    store(out + index * kVector, result);
    store(mask + index * kVector, kept);
  }
};

/// dx = dy mask / (1 - p).
template <class T>
struct DropoutBackward {
  static constexpr int kVector = kWidest<T>, kUnroll = 2;
  const T* dy;
  const std::uint8_t* mask;
  T* dx;
  std::int64_t elements;

  std::int64_t items() const { return ceil_divide(elements, kVector); }

  template <class Block>
  PM_HD void operator()(const Block& block) const {
    const std::int64_t vectors = elements / kVector;
    visit_tiles<kUnroll>(block, vectors, [&](std::int64_t first) {
      Vector<T, kVector> gradient[kUnroll] = {};
      Vector<std::uint8_t, kVector> kept[kUnroll] = {};
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i >= vectors) break;
        gradient[u] = load<kVector>(dy + i * kVector);
        kept[u] = load<kVector>(mask + i * kVector);
      }
      PM_UNROLL
      for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t i = first + static_cast<std::int64_t>(u) * block.threads();
        if (i >= vectors) break;
        Vector<T, kVector> result;
        PM_UNROLL
        for (int k = 0; k < kVector; ++k) {
          result.values[k] = scale(gradient[u].values[k], kept[u].values[k]);
        }
        store(dx + i * kVector, result);
      }
    });
    if (block.block() != 0) return;
    for (std::int64_t i = vectors * kVector + block.thread(); i < elements; i += block.threads()) {
      dx[i] = scale(dy[i], mask[i]);
    }
  }

 private:
  PM_HD static T scale(T gradient, std::uint8_t kept) {
    return from_float<T>(to_float(gradient) * static_cast<float>(kept) * kDropoutScale);
  }
};

}  // namespace kernels_bench::kernels
