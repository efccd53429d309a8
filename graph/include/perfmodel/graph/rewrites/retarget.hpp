#pragma once

#include "perfmodel/graph/detail/retarget_options.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// The graph that a GPU run of the same program would have given, from one that was recorded on a
/// machine without a GPU (by PyTorch's own packages or one with a generic BLAS).
///
/// Parameters, activations and state move to cuda:0; numbers that PyTorch keeps on the host stay
/// there. The step's inputs are copied. The inner ops of a CPU become the inner ops of a GPU,
/// library ops and their autograd nodes included. Backward functions move to autograd's own thread.
/// Labels, sequence numbers and the PyTorch version stay; so does the optimizer's way of walking
/// the parameters (PyTorch 2 would choose foreach on a GPU: see the optimizer rewrite).
/// docs/rewrites.md lists what is exact and what is assumed.
///
/// Errors (kImpossible): tensors on a GPU already; no tensor at all; ops that exist on CPUs alone
/// and have no counterpart here (all are named).
Result<ExecutionGraph> retarget(const ExecutionGraph& graph, const RetargetOptions& options = {});

/// `retarget` of a captured graph to the libraries of a vendor, which its warnings then say;
/// another graph stays as it is. Errors: as `retarget` has them, with the file of the graph.
Result<void> retarget_captured(ExecutionGraph& graph, RetargetOptions::Vendor vendor);

}  // namespace perfmodel
