#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

/// The sizes by which PyTorch's launches compute their grids.
namespace perfmodel::kernels {

inline std::int64_t quotient_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
inline std::int64_t power_of_two_up_to(std::int64_t x, std::int64_t most) {
  return std::min(most, static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(x))));
}

}  // namespace perfmodel::kernels
