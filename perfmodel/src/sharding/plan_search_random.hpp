#pragma once

#include <cstddef>
#include <cstdint>

namespace perfmodel::sharding::search {

/// SplitMix64: the same numbers everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  double uniform() { return static_cast<double>(next() >> 11U) * 0x1.0p-53; }  ///< [0, 1)
  std::uint32_t below(std::size_t count) {
    return static_cast<std::uint32_t>(((next() >> 32U) * count) >> 32U);
  }
  bool chance(double share) { return uniform() < share; }

 private:
  std::uint64_t state_;
};

}  // namespace perfmodel::sharding::search
