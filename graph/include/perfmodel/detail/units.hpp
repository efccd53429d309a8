#pragma once

#include <chrono>
#include <cstdint>

namespace perfmodel {

/// Times of predictions, in double microseconds.
using Microseconds = std::chrono::duration<double, std::micro>;

/// Stamps and durations of recorded events: exact, based at the first stamp of a file.
using Nanoseconds = std::chrono::duration<std::int64_t, std::nano>;

/// A quantity with its unit in the type, so that mixing units does not compile.
template <class Unit>
struct Quantity {
  double value = 0;

  friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.value + b.value}; }
  friend constexpr Quantity operator*(double factor, Quantity q) { return {factor * q.value}; }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  constexpr Quantity& operator+=(Quantity other) {
    value += other.value;
    return *this;
  }
};

using Bytes = Quantity<struct BytesTag>;                    ///< decimal: 1 GB = 1e9 B
using BytesPerSecond = Quantity<struct BytesPerSecondTag>;  ///< 1 GB/s = 1e9 B/s
using Flop = Quantity<struct FlopTag>;                      ///< a multiply-add counts 2
using FlopPerSecond = Quantity<struct FlopPerSecondTag>;

constexpr Microseconds operator/(Bytes size, BytesPerSecond rate) {
  return Microseconds{size.value / rate.value * 1e6};
}
constexpr Microseconds operator/(Flop work, FlopPerSecond rate) {
  return Microseconds{work.value / rate.value * 1e6};
}

}  // namespace perfmodel
