#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "graph_builder.hpp"

namespace perfmodel {

// Views without gradient, for the inside of ops that autograd handles as a whole and of backward
// functions. `sequence` is the node's, -1 if autograd is switched off.

/// The same storage as a dense tensor of another shape; no op.
TensorRef contiguous_view(GraphBuilder& graph, TensorRef x, Shape shape);

/// `x.resize_()` to the shape of `made`, which it gives; `order`: the memory format, if it is
/// given.
void resize_to(GraphBuilder& graph, TensorRef x, TensorRef made, Value order = kNone);
/// `x.resize_(shape)`, dense.
TensorRef resized(GraphBuilder& graph, TensorRef x, const Shape& shape);

/// `asked` with its -1 replaced.
Shape resolve(const GraphBuilder& graph, TensorRef x, Shape asked);
/// Strides under which the memory of `x` can be read as `shape`; none: it has to be copied first.
std::optional<Shape> view_strides(const GraphBuilder& graph, TensorRef x, const Shape& shape);
/// Negative axes count from the end.
std::size_t axis_of(const GraphBuilder& graph, TensorRef x, int dim);

/// A view of all of it that autograd does not follow.
TensorRef detach(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
TensorRef as_strided(GraphBuilder& graph, TensorRef x, Shape shape, Shape strides,
                     std::int64_t offset = 0, bool give_offset = false);
TensorRef transpose(GraphBuilder& graph, TensorRef x, int dim0, int dim1,
                    std::int64_t sequence = -1);
TensorRef t(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
/// A negative end counts from the back.
TensorRef slice(GraphBuilder& graph, TensorRef x, int dim, std::int64_t start, std::int64_t end,
                std::int64_t sequence = -1);
TensorRef select(GraphBuilder& graph, TensorRef x, int dim, std::int64_t index,
                 std::int64_t sequence = -1);
TensorRef narrow(GraphBuilder& graph, TensorRef x, int dim, std::int64_t start,
                 std::int64_t length);
TensorRef squeeze(GraphBuilder& graph, TensorRef x);
TensorRef squeeze(GraphBuilder& graph, TensorRef x, int dim, std::int64_t sequence = -1);
TensorRef unsqueeze(GraphBuilder& graph, TensorRef x, int dim, std::int64_t sequence = -1);
TensorRef permute(GraphBuilder& graph, TensorRef x, const Shape& axes, std::int64_t sequence = -1);
TensorRef expand(GraphBuilder& graph, TensorRef x, const Shape& shape, std::int64_t sequence = -1);
/// `asked` is the size argument, which may hold a -1; the memory of `x` must allow the view.
TensorRef view(GraphBuilder& graph, TensorRef x, const Shape& asked, std::int64_t sequence = -1);
TensorRef unsafe_view(GraphBuilder& graph, TensorRef x, const Shape& asked,
                      std::int64_t sequence = -1);
/// A view if the memory allows it, else a copy.
TensorRef reshape(GraphBuilder& graph, TensorRef x, const Shape& asked, std::int64_t sequence = -1);
/// All axes as one.
TensorRef flatten(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
/// Pieces of these sizes along `dim`.
std::vector<TensorRef> split_with_sizes(GraphBuilder& graph, TensorRef x, const Shape& sizes,
                                        int dim, std::int64_t sequence = -1);
/// The part of an axis that an index expression leaves ("x[:, 2:5]"), as the far end of a ":".
inline constexpr std::int64_t kSliceEnd = std::numeric_limits<std::int64_t>::max();

/// The view inside of reshape(): `aten::view`, or `aten::_reshape_alias` before PyTorch 2.1.
TensorRef reshaped_view(GraphBuilder& graph, TensorRef x, const Shape& asked,
                        std::int64_t sequence = -1);

}  // namespace perfmodel
