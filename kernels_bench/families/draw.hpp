#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace kernels_bench {

/// Random numbers of one point: they depend on seed, family and the point's number alone, so that
/// a longer sweep begins with the shorter one, and every machine draws the same.
class Draw {
 public:
  Draw(std::uint64_t seed, std::string_view family, std::uint64_t index) : state_(seed) {
    for (const char c : family) state_ = mixed(state_ ^ static_cast<unsigned char>(c));
    state_ = mixed(state_ ^ index);
  }

  /// [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
  bool chance(double probability) { return uniform() < probability; }

  /// One of 0 ... count - 1.
  std::size_t below(std::size_t count) {
    return static_cast<std::size_t>(uniform() * static_cast<double>(count));
  }

  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

  std::int64_t log_uniform(double low, double high) {
    return std::llround(low * std::exp(uniform() * std::log(high / low)));
  }

  /// Half of the sizes are multiples of 8, 32 or 128, as real layers are; the others as they come.
  std::int64_t size(double low, double high) {
    const std::int64_t any = log_uniform(low, high);
    if (chance(0.5)) return any;
    const std::int64_t step = any >= 512 ? pick({8, 32, 128}) : any >= 64 ? pick({8, 32}) : 8;
    const std::int64_t aligned = (any + step / 2) / step * step;
    return aligned >= low && aligned <= high ? aligned : any;
  }

 private:
  std::uint64_t next() { return mixed(state_ += 0x9E3779B97F4A7C15u); }

  // SplitMix64 (Steele, Lea, Flood 2014).
  static std::uint64_t mixed(std::uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }

  std::uint64_t state_;
};

}  // namespace kernels_bench
