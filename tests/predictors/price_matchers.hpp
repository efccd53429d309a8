#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>

#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel::test_support {

/// Equal to the bit, in every field.
inline ::testing::AssertionResult is_same_price(const Price& a, const Price& b) {
  const auto same = [](Microseconds x, Microseconds y) {
    return std::bit_cast<std::uint64_t>(x.count()) == std::bit_cast<std::uint64_t>(y.count());
  };
  if (same(a.time, b.time) && same(a.low, b.low) && same(a.high, b.high) &&
      same(a.compute, b.compute) && same(a.memory, b.memory) && same(a.latency, b.latency) &&
      a.bound == b.bound && a.model == b.model && a.in_range == b.in_range &&
      a.knowledge == b.knowledge) {
    return ::testing::AssertionSuccess();
  }
  return ::testing::AssertionFailure() << a.time.count() << " us by " << a.model << " is not "
                                       << b.time.count() << " us by " << b.model;
}

}  // namespace perfmodel::test_support
