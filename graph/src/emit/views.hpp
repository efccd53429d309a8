#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

// Views. Those on a GraphBuilder have no gradient: what runs inside an op that autograd handles as
// a whole, and in backward functions. `sequence` is that of the node, -1 where autograd is switched
// off. Those on a tape are recorded for the backward pass.

/// The same storage as a dense tensor of another shape; no op.
TensorRef contiguous_view(GraphBuilder& graph, TensorRef x, Shape shape);

TensorRef as_strided(GraphBuilder& graph, TensorRef x, Shape shape, Shape strides,
                     std::int64_t offset = 0, bool give_offset = false);
TensorRef transpose(GraphBuilder& graph, TensorRef x, int dim0, int dim1,
                    std::int64_t sequence = -1);
TensorRef t(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
TensorRef slice(GraphBuilder& graph, TensorRef x, int dim, std::int64_t start, std::int64_t end,
                std::int64_t sequence = -1);
TensorRef select(GraphBuilder& graph, TensorRef x, int dim, std::int64_t index,
                 std::int64_t sequence = -1);
TensorRef narrow(GraphBuilder& graph, TensorRef x, int dim, std::int64_t start,
                 std::int64_t length);
TensorRef squeeze(GraphBuilder& graph, TensorRef x);
TensorRef squeeze(GraphBuilder& graph, TensorRef x, int dim);
TensorRef unsqueeze(GraphBuilder& graph, TensorRef x, int dim, std::int64_t sequence = -1);
TensorRef expand(GraphBuilder& graph, TensorRef x, Shape shape);
/// A view of a contiguous tensor; `asked` is the size argument, which may hold a -1.
TensorRef view(GraphBuilder& graph, TensorRef x, const Shape& asked, std::int64_t sequence = -1);
TensorRef reshape(GraphBuilder& graph, TensorRef x, const Shape& asked, std::int64_t sequence = -1);
/// The view inside of reshape(): `aten::view`, or `aten::_reshape_alias` before PyTorch 2.1.
TensorRef reshaped_view(GraphBuilder& graph, TensorRef x, const Shape& shape,
                        std::int64_t sequence = -1);

TensorRef view(AutogradTape& tape, TensorRef x, const Shape& asked);
/// Makes one axis of all from `from_dim` on.
TensorRef flatten(AutogradTape& tape, TensorRef x, int from_dim);
TensorRef transpose(AutogradTape& tape, TensorRef x, int dim0, int dim1);

}  // namespace perfmodel
