#pragma once

#include "graph_builder.hpp"

namespace perfmodel {

// Allocations, fills and copies on the model's device; ops that give `made` run on its device.

/// A tensor of the same type and shape; no op.
TensorRef like(GraphBuilder& graph, TensorRef x);
/// PyTorch wraps the number of `x + 3` into a tensor on the CPU; no op.
TensorRef wrapped_number(GraphBuilder& graph, DType dtype = DType::kInt64);

/// Which options of a new tensor a caller spells out; the others are None. PyTorch's own code takes
/// type, layout and device from a tensor that is there.
struct TensorOptions {
  bool dtype = true, layout = true, device = true;
  bool pinned = false;  ///< whether the call says that memory is not pinned
  bool order = false;   ///< row-major
};
/// Options of Python's functions ("torch.empty"), whose callers may leave out the type.
constexpr TensorOptions from_python(bool with_dtype = true) {
  return {.dtype = with_dtype, .layout = false, .pinned = true};
}

/// `at::empty` that gives `made`.
void allocate(GraphBuilder& graph, TensorRef made, const TensorOptions& options = {});
/// `at::empty_strided` that gives `made`.
void allocate_strided(GraphBuilder& graph, TensorRef made, const Shape& strides,
                      const TensorOptions& options = {});
/// `at::empty_like(x)` with options, row-major, that gives `made`.
void allocate_like(GraphBuilder& graph, TensorRef made, TensorRef x);

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
/// With an argument for the order in memory, which is the order of `x`.
TensorRef empty_like_in_order(GraphBuilder& graph, TensorRef x);
/// Row-major, whatever order `x` has.
TensorRef empty_like_contiguous(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
TensorRef zeros(GraphBuilder& graph, DType dtype, Shape shape);
/// The same that gives `made`.
void zeros(GraphBuilder& graph, TensorRef made, const TensorOptions& options);
TensorRef zeros_like(GraphBuilder& graph, TensorRef x);
TensorRef zeros_like(GraphBuilder& graph, TensorRef x, DType dtype);
TensorRef new_empty(GraphBuilder& graph, TensorRef like, Shape shape);
TensorRef new_zeros(GraphBuilder& graph, TensorRef like, Shape shape);
/// The gradient from which a backward pass starts.
TensorRef ones_like(GraphBuilder& graph, TensorRef loss);
void fill(GraphBuilder& graph, TensorRef x, Value number, std::int64_t sequence = -1);
/// On a CPU, less than 32,768 elements are set without a further op.
void zero(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
/// Casts a wrapped number of another type than `dtype` for an elementwise op: a CPU casts it in an
/// op of its own, the kernels of a GPU on the way.
void cast_wrapped_number(GraphBuilder& graph, TensorRef number, DType dtype);
void copy(GraphBuilder& graph, TensorRef to, TensorRef from, bool non_blocking = false);

struct ToOptions {
  TensorOptions tensor = {};
  bool non_blocking = false, always_copies = false;
};
/// `x.to(...)` by options of tensors: copies `x` to `made`, or does nothing if that is `x`.
void to(GraphBuilder& graph, TensorRef x, TensorRef made, const ToOptions& options = {},
        std::int64_t sequence = -1);
/// `x.to(memory_format=torch.contiguous_format)` of a tensor that is row-major.
void to_contiguous(GraphBuilder& graph, TensorRef x);
/// `x.to(dtype)` of a tensor that has this dtype already.
void to_same_dtype(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);

/// `x.to(dtype)` of a tensor without gradient.
TensorRef to_dtype(GraphBuilder& graph, TensorRef x, DType dtype, std::int64_t sequence = -1);
/// The same that gives `made`, which may have another order in memory.
void to_dtype(GraphBuilder& graph, TensorRef x, TensorRef made, std::int64_t sequence = -1);
/// The same as one op, without its inner ops.
TensorRef to_dtype_alone(GraphBuilder& graph, TensorRef x, DType dtype, std::int64_t sequence);
/// `x.tolist()`: the host waits for the numbers.
void to_list(GraphBuilder& graph, TensorRef x, std::int64_t sequence);
/// `torch.tensor(..., device=device)` of numbers that Python wrote into `host`. `copied`: options
/// that the copy to a GPU spells out.
TensorRef tensor_of_python(GraphBuilder& graph, TensorRef host, Device device,
                           const TensorOptions& copied, std::int64_t sequence);
/// `torch.tensor([...], device=device)` of `count` numbers.
TensorRef tensor_of_list(GraphBuilder& graph, DType dtype, Device device, std::int64_t count,
                         std::int64_t sequence);

/// `x.to(device)` of a tensor without gradient in host memory.
TensorRef to_device(GraphBuilder& graph, TensorRef host, bool non_blocking, std::int64_t sequence);

}  // namespace perfmodel
