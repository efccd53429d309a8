#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "loop_kernel.hpp"

namespace perfmodel {

/// Where loops run that follow a product of matrices.
enum class Epilogues : std::uint8_t { kApart, kInProducts };

/// The names of the ops that run in it, sorted, each once: as Inductor puts them together.
std::string names_of_ops(const LoopGraph& graph, const LoopKernel& kernel);

/// Kernels as Inductor of PyTorch 2 makes them of the ops of one pass: pointwise ops are computed
/// where they are read (torch/_inductor/ir.py), unless a library call reads them or several ops
/// read much; the other ops are fused with their readers, or with ops that read the same, by the
/// bytes that this saves (torch/_inductor/scheduler.py). `is_output`: by value. Epilogues come
/// last: loops that are pointwise then, and read a product element by element, go into its kernel.
std::vector<LoopKernel> loop_kernels(const LoopGraph& graph, std::span<const std::int32_t> ops,
                                     const std::vector<bool>& is_output,
                                     Epilogues epilogues = Epilogues::kApart);

}  // namespace perfmodel
