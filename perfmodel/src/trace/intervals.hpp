#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace perfmodel {

/// Half-open intervals [begin, end) of nanoseconds.
using Intervals = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// The union as disjoint intervals in ascending order; empty ones are left out.
Intervals merged(Intervals intervals);

// The rest takes merged ones.

std::int64_t total_length(const Intervals& intervals);
/// Times in both.
Intervals common(const Intervals& a, const Intervals& b);
/// Times in `a` but not in `b`.
Intervals without(const Intervals& a, const Intervals& b);

}  // namespace perfmodel
