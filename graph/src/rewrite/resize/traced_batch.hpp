#pragma once

#include <cstdint>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Samples per step of a graph that was made of a trace: the second dimension of a recurrent
/// layer's states, else the first one of what the first convolution, linear layer or embedding of
/// the step gets. Errors: sizes were not recorded, no such op.
Result<std::int64_t> traced_batch_size(const ExecutionGraph& graph);

/// The batch of a graph that was made of a trace, which does not tell what tensors are the same:
/// sizes cannot be followed from op to op as set_batch_size() does. So place tells them apart and,
/// if that is not enough, value:
///
/// - *Parameters* are tensors that ops take in a parameter's place (op catalogue) and that
///   AccumulateGrad gets. Tensors of their shapes, in either order, are constant, and so is all
///   that the optimizer works on, rows of sparse gradients aside.
/// - Of two matrices, the one that is no parameter grows in its free dimension; where their product
///   has the shape of a parameter, the dimension that is summed over grows. Between several
///   readings the order in a backward function decides: the gradient of the input comes first.
/// - Everything else is data. Its first dimension grows if it is the batch or a product of the
///   batch and the dimensions after it in some tensor ([B, S, H]: B, B S, B S H); else the batch
///   itself in the second or third place does, offsets [T B + 1], numbers of lookups, and arrays
///   of a backward function that hold a multiple of the batch.
///
/// `current`: 0 for traced_batch_size(). A warning of the graph says that sizes were inferred, and
/// how many tensors have the shape of parameters and of data both and count as data.
///
/// Errors: sizes were not recorded, no tensor has the batch in front, sizes beyond 2^40.
Result<ExecutionGraph> set_traced_batch_size(const ExecutionGraph& graph, std::int64_t current,
                                             std::int64_t wanted);

}  // namespace perfmodel
