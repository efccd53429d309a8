#pragma once

#include <set>
#include <vector>

#include "compiled_regions.hpp"
#include "loop_builder.hpp"
#include "loop_kernels.hpp"
#include "rewrite/graph_edit.hpp"

namespace perfmodel {

/// A region with the kernels of both passes.
struct CompiledKernels {
  CompiledRegion region;
  LoopGraph loops;
  std::vector<LoopKernel> forward, backward;
  /// Views that the program goes on with: mentions that stay as they are.
  std::vector<std::uint32_t> views;
  /// Nodes that stay as they are, in front of the kernels of their pass.
  std::set<std::int32_t> kept;
  /// AccumulateGrads of parameters inside of checkpoints: nodes that come after the region's
  /// backward function.
  std::vector<std::int32_t> accumulations;
  /// By mention in the graph: the one whose tensor nodes of the region read instead.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> renamed;
};

/// Writes regions as recordings of PyTorch 2 show them: "Torch-Compiled Region: 0/0" >
/// CompiledFunction > library calls and Triton kernels, and one CompiledFunctionBackward.
ExecutionGraph write_compiled(const StepView& step, const std::vector<CompiledKernels>& regions,
                              const CompileRewrite& rewrite);

}  // namespace perfmodel
