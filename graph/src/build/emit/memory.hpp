#pragma once

#include "graph_builder.hpp"

namespace perfmodel {

// Allocations, fills and copies, all on the device where the model computes.

/// A tensor of the same type and shape; no op.
TensorRef like(GraphBuilder& graph, TensorRef x);
/// PyTorch wraps the number of `x + 3` into a tensor on the CPU; no op.
TensorRef wrapped_number(GraphBuilder& graph, DType dtype = DType::kInt64);

TensorRef contiguous(GraphBuilder& graph, TensorRef x);
/// A copy in row-major order.
TensorRef clone(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
TensorRef empty(GraphBuilder& graph, DType dtype, Shape shape);
/// The op that allocates `made`, a tensor that the graph has already.
void empty_into(GraphBuilder& graph, TensorRef made, Value format = kNone);
/// `at::empty({count}, kByte)`: a workspace.
TensorRef empty_bytes(GraphBuilder& graph, std::int64_t count);
TensorRef empty_like(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
TensorRef empty_like(GraphBuilder& graph, TensorRef x, DType dtype);
/// Row-major, whatever order `x` has.
TensorRef empty_like_contiguous(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
TensorRef zeros(GraphBuilder& graph, DType dtype, Shape shape);
TensorRef zeros_like(GraphBuilder& graph, TensorRef x);
TensorRef zeros_like(GraphBuilder& graph, TensorRef x, DType dtype);
TensorRef new_zeros(GraphBuilder& graph, TensorRef like, Shape shape);
/// The gradient from which a backward pass starts.
TensorRef ones_like(GraphBuilder& graph, TensorRef loss);
/// On a CPU, less than 32,768 elements are set without a further op.
void zero(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
/// What an elementwise op on a CPU does with a wrapped number of another type than `dtype`: it is
/// cast in an op of its own, the kernels of a GPU cast it on the way.
void cast_wrapped_number(GraphBuilder& graph, TensorRef number, DType dtype);
void copy(GraphBuilder& graph, TensorRef to, TensorRef from, bool non_blocking = false);
/// `x.to(dtype)` of a tensor that has this dtype already.
void to_same_dtype(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);

/// `x.to(dtype)` of a tensor without gradient.
TensorRef to_dtype(GraphBuilder& graph, TensorRef x, DType dtype, std::int64_t sequence = -1);
/// `x.tolist()`: the host waits for the numbers.
void to_list(GraphBuilder& graph, TensorRef x, std::int64_t sequence);
/// `torch.tensor([...], device=device)` of `count` numbers.
TensorRef tensor_of_list(GraphBuilder& graph, DType dtype, Device device, std::int64_t count,
                         std::int64_t sequence);

/// `x.to(device)` of a tensor without gradient in host memory.
TensorRef to_device(GraphBuilder& graph, TensorRef host, bool non_blocking, std::int64_t sequence);

}  // namespace perfmodel
