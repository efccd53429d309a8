#pragma once

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

struct PrecisionOptions {
  enum class Precision {
    kFp32,  ///< matrix products in fp32, PyTorch's default
    kTf32,  ///< torch.backends.cuda.matmul.allow_tf32: fp32 tensors, products in TF32
    kFp16,  ///< torch.autocast(dtype=torch.float16)
    kBf16,  ///< torch.autocast(dtype=torch.bfloat16)
  } precision = Precision::kFp32;

  /// The loss is scaled, gradients are unscaled and checked (torch.cuda.amp.GradScaler): fp16 only.
  bool grad_scaler = false;
};

/// An fp32 graph as the same program would have been recorded in another precision.
///
/// fp32 and TF32 set ExecutionGraph::allow_tf32, nothing else. Half types do what torch.autocast
/// does around the forward pass (lists of ops: PyTorch 2 on GPUs, PyTorch 1.13 on CPUs):
///
/// - an op of its lists stands twice, the outer node without sequence number, casts of its
///   arguments (last argument first) between the two; casts of parameters are kept for the rest of
///   the forward pass;
/// - what follows computes in the type of its inputs, mixed inputs in fp32;
/// - each cast that autograd sees has its ToCopyBackward0; where a gradient has another type than
///   the tensor it belongs to, the engine casts it behind the function; gradients of parameters
///   arrive in fp32;
/// - sequence numbers grow by the casts that came before.
///
/// Preconditions (kImpossible): tensors on a GPU, or bfloat16 on a CPU; no products in half types
/// yet; no checkpoints, no fused kernels; at least one op that autocast changes. The GradScaler
/// needs fp16 and a backward pass.
Result<ExecutionGraph> rewrite_precision(const ExecutionGraph& graph,
                                         const PrecisionOptions& options);

}  // namespace perfmodel
