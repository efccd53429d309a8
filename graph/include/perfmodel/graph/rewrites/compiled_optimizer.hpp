#pragma once

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Compiles the optimizer's step: `torch.compile(optimizer.step)` (PyTorch tutorial "Compiling the
/// optimizer with torch.compile", from 2.2 on).
///
/// The ops of each dense update become kernels over lists of parameters: "triton_for_fused_N" in a
/// region "Torch-Compiled Region: 1/N", which read parameters, gradients and state once and write
/// parameters and state once, casts of gradients and copies of weights included. A kernel takes as
/// many parameters as its 250 arguments hold (Inductor's MAX_NUM_ARGS; a buffer that is read and
/// written counts twice). Counters of steps are then single numbers on the GPU and left out.
/// Updates of sparse gradients break the graph and stay as they are, before the region. So do steps
/// of one fused op, for which Inductor calls PyTorch's own kernel.
///
/// Errors: no optimizer, one with state in 8 bits (a library's kernel), or one whose parameters are
/// not on a GPU.
Result<ExecutionGraph> rewrite_compiled_optimizer(const ExecutionGraph& graph);

}  // namespace perfmodel
