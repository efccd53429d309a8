#pragma once

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// What if neighbouring pointwise ops ran as one kernel, as torch.compile makes them (Ansel et al.,
/// PyTorch 2, ASPLOS 2024) and Daydream asks of fused optimizers (Zhu et al., USENIX ATC 2020)?
///
/// Runs of two or more pointwise ops (pointwise_ops.hpp, and casts on one device) become one op
/// each, written like a kernel of Inductor: kernel_backend "triton", name
/// "triton_poi_fused_mul_tanh_0" with the ops in their order and a number per distinct kernel. Its
/// inputs are the tensors that the run reads from outside, then the number of elements; its outputs
/// are those that are needed behind the run: the result of the last op, what is updated in place,
/// and what any later node reads (saved for the backward pass or not). Everything else never
/// reaches memory.
///
/// A run: ops one behind the other on one thread, results of one shape on one GPU, each op reading
/// a tensor of that size which the run made or read before. Anything in between ends it: other ops,
/// views too, allocations, borders of labels. So does an op that reads or writes memory of the run
/// through another tensor (a view), or a time that was given to an op by hand.
///
/// In the backward pass a run may go on in the next functions of the engine if all that those do
/// belongs to it: one of their ops reads such a tensor, all have that shape (functions without ops
/// may stand in between); they are gone, the op stands in the first one. Of the numbers of a run in
/// the forward pass the last one stays; others keep their numbers, so that a backward function
/// whose forward op lies inside of a run has no partner.
///
/// A graph without such runs comes back as it is. Streams other than a thread's own are not known
/// to a graph.
Result<ExecutionGraph> rewrite_elementwise_fusion(const ExecutionGraph& graph);

}  // namespace perfmodel
