#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace perfmodel {

/// The pinned block that holds so many bytes: PyTorch's CachingHostAllocator rounds up to a power
/// of two.
inline double pinned_block_bytes(double bytes) {
  return bytes > 0 ? std::exp2(std::ceil(std::log2(bytes))) : 0;
}

}  // namespace perfmodel
