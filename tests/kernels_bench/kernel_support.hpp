#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "emulated_block.hpp"
#include "kernels_bench/kernels/portability.hpp"
#include "kernels_bench/kernels/reference.hpp"

namespace kernels_bench {

using kernels::BFloat16;
using kernels::Half;
using TensorTypes = testing::Types<float, BFloat16, Half>;

struct TypeNames {
  template <class T>
  static std::string GetName(int) {
    if (std::is_same_v<T, float>) return "fp32";
    return std::is_same_v<T, Half> ? "fp16" : "bf16";
  }
};

/// Error allowed for rounding the result to T, relative to its size; fp32: for the arithmetic.
template <class T>
constexpr double kTolerance = 2e-6;
template <>
inline constexpr double kTolerance<BFloat16> = 0x1p-8;
template <>
inline constexpr double kTolerance<Half> = 0x1p-10;

/// A tensor on a 16-byte boundary.
template <class T>
class Tensor {
 public:
  explicit Tensor(std::int64_t count) : count_(count), lines_(count * sizeof(T) / 16 + 1) {
    std::memset(lines_.data(), 0xff, lines_.size() * 16);  // NaN where nothing is written
  }

  /// Uniform in [low, high).
  static Tensor random(std::int64_t count, unsigned seed, float low = -1, float high = 1) {
    Tensor tensor(count);
    std::mt19937 generator(seed);
    std::uniform_real_distribution<float> uniform(low, high);
    for (std::int64_t i = 0; i < count; ++i) {
      if constexpr (std::is_integral_v<T>) {
        tensor.data()[i] = static_cast<T>(generator());
      } else {
        tensor.data()[i] = kernels::from_float<T>(uniform(generator));
      }
    }
    return tensor;
  }

  T* data() { return reinterpret_cast<T*>(lines_.data()); }
  const T* data() const { return reinterpret_cast<const T*>(lines_.data()); }
  std::int64_t size() const { return count_; }
  T& operator[](std::int64_t i) { return data()[i]; }
  const T& operator[](std::int64_t i) const { return data()[i]; }

  /// `count` elements from `first` on, `stride` apart, as doubles.
  reference::Row row(std::int64_t first, std::int64_t count, std::int64_t stride = 1) const {
    reference::Row result(count);
    for (std::int64_t i = 0; i < count; ++i) {
      result[i] = kernels::to_float(data()[first + i * stride]);
    }
    return result;
  }
  reference::Row all() const { return row(0, count_); }

 private:
  struct alignas(16) Line {
    unsigned char bytes[16];
  };
  std::int64_t count_;
  std::vector<Line> lines_;
};

/// Relative to the largest expected value.
inline void expect_near(const reference::Row& actual, const reference::Row& expected,
                        double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    // NaN compares false.
    const bool near = std::abs(actual[i] - expected[i]) <= tolerance * largest;
    ASSERT_TRUE(near) << "element " << i << " of " << expected.size() << ": " << actual[i]
                      << ", expected " << expected[i];
  }
}

/// Row numbers with many duplicates of row 0.
inline Tensor<std::int64_t> random_indices(std::int64_t count, std::int64_t rows, unsigned seed) {
  Tensor<std::int64_t> indices(count);
  std::mt19937 generator(seed);
  for (std::int64_t i = 0; i < count; ++i) {
    indices[i] = generator() % 3 == 0 ? 0 : static_cast<std::int64_t>(generator() % rows);
  }
  return indices;
}

}  // namespace kernels_bench
