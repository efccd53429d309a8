#pragma once

#include "cases.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace kernels_bench {

/// The case as kernel models see it: FLOP, bytes and shape, as a kernel table's reader makes them
/// from its cells.
perfmodel::KernelWork work_of(const Case& point, const perfmodel::Gpu& gpu);

/// Device memory of one set of buffers.
double footprint_bytes(const Case& point);

/// False for the peaks that are fixed costs of calls: neither FLOP nor bytes.
bool moves_or_computes(const Case& point);

}  // namespace kernels_bench
