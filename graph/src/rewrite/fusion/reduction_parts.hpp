#pragma once

#include <cstdint>

#include "loop_kernels.hpp"

namespace perfmodel {

/// How many parts each result of a reduction is first computed in; 1: it is not split. As
/// Reduction.num_splits() of torch/_inductor/ir.py chooses for an H100; on GPUs with fewer
/// multiprocessors some splits differ.
std::int64_t parts_of_reduction(const LoopKernel& kernel);

}  // namespace perfmodel
