#pragma once

#include <optional>

#include "perfmodel/detail/overhead_table.hpp"

namespace perfmodel {

/// How many times as long a host-bound step takes while a collector records it, as measured on one
/// machine (docs/overheads.md). Empty: a collector that was not measured.
std::optional<double> slowdown_under(Collector collector);

/// Factors that bring terms which the profiler recorded with shapes to a step without it. Unlike
/// the reference host's factors they keep the recording's own speed.
inline constexpr TermFactors kWithoutProfiler = {0.53, 0.305, 0.305, 0.85, 0.305, 0.305};

}  // namespace perfmodel
