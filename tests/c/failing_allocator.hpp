#pragma once

#include <cstddef>

/// Counts the allocations of this process and makes chosen ones fail. Replaces malloc and its
/// kin; under sanitizers, which have a malloc of their own, operator new.
namespace failing_allocator {

enum class Failure {
  kOne,      ///< the n-th allocation alone
  kAllFrom,  ///< the n-th and all later ones
};

/// From now on; n counts from 1. Until `disarm()`.
void arm(std::size_t n, Failure failure);
/// Returns the number of allocations since `arm`.
std::size_t disarm();

/// Blocks that were allocated and not freed.
long live();

}  // namespace failing_allocator
