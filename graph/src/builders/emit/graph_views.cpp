#include "graph_views.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "memory.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {
TensorRef contiguous_view(GraphBuilder& graph, TensorRef x, Shape shape) {
  Shape strides = contiguous_strides(shape);
  return graph.new_view(x, std::move(shape), std::move(strides));
}

void resize_to(GraphBuilder& graph, TensorRef x, TensorRef made, Value order) {
  graph.leaf_op("aten::resize_", {x, graph.shape(made), std::move(order)}, {made});
}

TensorRef resized(GraphBuilder& graph, TensorRef x, const Shape& shape) {
  const TensorRef made = contiguous_view(graph, x, shape);
  resize_to(graph, x, made);
  return made;
}

Shape resolve(const GraphBuilder& graph, TensorRef x, Shape asked) {
  std::int64_t known = 1;
  for (std::int64_t size : asked) known *= size < 0 ? 1 : size;
  for (std::int64_t& size : asked) {
    if (size < 0) size = graph.numel(x) / known;
  }
  return asked;
}

// Walks both shapes from the back: a block of axes of x that are contiguous in memory can be cut
// anew, as in PyTorch's computeStride.
std::optional<Shape> view_strides(const GraphBuilder& graph, TensorRef x, const Shape& shape) {
  const Shape &from = graph.shape(x), &strides = graph.strides(x);
  if (graph.numel(x) == 0) return from == shape ? strides : contiguous_strides(shape);
  Shape made(shape.size(), from.empty() ? 1 : strides.back());
  if (from.empty()) return made;
  std::size_t to = shape.size();
  std::int64_t base = strides.back(), block = 1, viewed = 1;
  for (std::size_t i = from.size(); i-- > 0;) {
    block *= from[i];
    if (i > 0 && (from[i - 1] == 1 || strides[i - 1] == block * base)) continue;
    while (to > 0 && (viewed < block || shape[to - 1] == 1)) {
      made[to - 1] = viewed * base;
      viewed *= shape[to - 1];
      --to;
    }
    if (viewed != block) return std::nullopt;
    if (i > 0) {
      base = strides[i - 1];
      block = viewed = 1;
    }
  }
  if (to != 0) return std::nullopt;
  return made;
}

std::size_t axis_of(const GraphBuilder& graph, TensorRef x, int dim) {
  const int rank = static_cast<int>(graph.shape(x).size()), axis = dim < 0 ? dim + rank : dim;
  if (axis < 0 || axis >= rank) {
    throw Contradiction(fmt::format("a tensor of {} dimensions has no dimension {}", rank, dim));
  }
  return static_cast<std::size_t>(axis);
}

TensorRef detach(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  const TensorRef made = graph.new_view(x, graph.shape(x), graph.strides(x));
  graph.begin_op("aten::detach", {x}, sequence);
  graph.begin_plain("detach", {x});
  graph.end_op();
  return graph.end_with(made);
}

TensorRef as_strided(GraphBuilder& graph, TensorRef x, Shape shape, Shape strides,
                     std::int64_t offset, bool give_offset) {
  const TensorRef view = graph.new_view(x, shape, strides, offset);
  const Value storage_offset = give_offset ? Value(graph.offset(view)) : Value(kNone);
  graph.leaf_op("aten::as_strided", {x, shape, strides, storage_offset}, {view});
  return view;
}

namespace {
// An op whose result is a strided view of its first argument.
TensorRef strided_op(GraphBuilder& graph, std::string_view op, std::vector<Value> arguments,
                     std::int64_t sequence, Shape shape, Shape strides,
                     std::optional<std::int64_t> offset = {}) {
  const TensorRef x = std::get<TensorRef>(arguments.front().variant());
  graph.begin_op(op, std::move(arguments), sequence);
  return graph.end_with(as_strided(graph, x, std::move(shape), std::move(strides),
                                   offset.value_or(0), offset.has_value()));
}
}  // namespace

TensorRef transpose(GraphBuilder& graph, TensorRef x, int dim0, int dim1, std::int64_t sequence) {
  Shape shape = graph.shape(x), strides = graph.strides(x);
  const std::size_t a = axis_of(graph, x, dim0), b = axis_of(graph, x, dim1);
  std::swap(shape[a], shape[b]);
  std::swap(strides[a], strides[b]);
  return strided_op(graph, "aten::transpose.int", {x, dim0, dim1}, sequence, std::move(shape),
                    std::move(strides));
}

TensorRef t(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  graph.begin_op("aten::t", {x}, sequence);
  return graph.end_with(transpose(graph, x, 0, 1));
}

TensorRef slice(GraphBuilder& graph, TensorRef x, int dim, std::int64_t start, std::int64_t end,
                std::int64_t sequence) {
  const std::size_t axis = axis_of(graph, x, dim);
  Shape shape = graph.shape(x), strides = graph.strides(x);
  shape[axis] = (end < 0 ? end + shape[axis] : std::min(end, shape[axis])) - start;
  const std::int64_t offset = start * strides[axis];
  return strided_op(graph, "aten::slice.Tensor", {x, dim, start, end, 1}, sequence,
                    std::move(shape), std::move(strides), offset);
}

TensorRef select(GraphBuilder& graph, TensorRef x, int dim, std::int64_t index,
                 std::int64_t sequence) {
  Shape shape = graph.shape(x), strides = graph.strides(x);
  const std::int64_t offset = (index < 0 ? index + shape[dim] : index) * strides[dim];
  shape.erase(shape.begin() + dim);
  strides.erase(strides.begin() + dim);
  return strided_op(graph, "aten::select.int", {x, dim, index}, sequence, std::move(shape),
                    std::move(strides), offset);
}

TensorRef narrow(GraphBuilder& graph, TensorRef x, int dim, std::int64_t start,
                 std::int64_t length) {
  graph.begin_op("aten::narrow", {x, dim, start, length});
  return graph.end_with(slice(graph, x, dim, start, start + length));
}

TensorRef squeeze(GraphBuilder& graph, TensorRef x) {
  Shape shape, strides;
  for (std::size_t i = 0; i < graph.shape(x).size(); ++i) {
    if (graph.shape(x)[i] == 1) continue;
    shape.push_back(graph.shape(x)[i]);
    strides.push_back(graph.strides(x)[i]);
  }
  return strided_op(graph, "aten::squeeze", {x}, -1, std::move(shape), std::move(strides));
}

TensorRef squeeze(GraphBuilder& graph, TensorRef x, int dim, std::int64_t sequence) {
  Shape shape = graph.shape(x), strides = graph.strides(x);
  const auto axis = static_cast<std::ptrdiff_t>(axis_of(graph, x, dim));
  shape.erase(shape.begin() + axis);
  strides.erase(strides.begin() + axis);
  return strided_op(graph, "aten::squeeze.dim", {x, dim}, sequence, std::move(shape),
                    std::move(strides));
}

TensorRef unsqueeze(GraphBuilder& graph, TensorRef x, int dim, std::int64_t sequence) {
  Shape shape = graph.shape(x), strides = graph.strides(x);
  const auto axis = dim < 0 ? dim + static_cast<int>(shape.size()) + 1 : dim;
  const auto at = static_cast<std::size_t>(axis);
  const std::int64_t stride = at < shape.size() ? shape[at] * strides[at] : 1;
  shape.insert(shape.begin() + axis, 1);
  strides.insert(strides.begin() + axis, stride);
  return strided_op(graph, "aten::unsqueeze", {x, dim}, sequence, std::move(shape),
                    std::move(strides));
}

TensorRef permute(GraphBuilder& graph, TensorRef x, const Shape& axes, std::int64_t sequence) {
  Shape shape, strides;
  for (std::int64_t axis : axes) {
    shape.push_back(graph.shape(x)[axis]);
    strides.push_back(graph.strides(x)[axis]);
  }
  return strided_op(graph, "aten::permute", {x, axes}, sequence, std::move(shape),
                    std::move(strides));
}

TensorRef expand(GraphBuilder& graph, TensorRef x, const Shape& shape, std::int64_t sequence) {
  // Axes that x lacks or has with size 1 get stride 0.
  Shape strides(shape.size(), 0);
  const std::size_t missing = shape.size() - graph.shape(x).size();
  for (std::size_t i = missing; i < shape.size(); ++i) {
    if (graph.shape(x)[i - missing] == shape[i]) strides[i] = graph.strides(x)[i - missing];
  }
  return strided_op(graph, "aten::expand", {x, shape, false}, sequence, shape, std::move(strides));
}

namespace {
TensorRef strided_view(GraphBuilder& graph, TensorRef x, const Shape& asked) {
  Shape shape = resolve(graph, x, asked);
  auto strides = view_strides(graph, x, shape);
  if (!strides) {
    throw Contradiction(fmt::format("a tensor of [{}] cannot be viewed as [{}]",
                                    fmt::join(graph.shape(x), ", "), fmt::join(asked, ", ")));
  }
  return graph.new_view(x, std::move(shape), std::move(*strides));
}
}  // namespace

TensorRef view(GraphBuilder& graph, TensorRef x, const Shape& asked, std::int64_t sequence) {
  return graph.leaf("aten::view", {x, asked}, strided_view(graph, x, asked), sequence);
}

TensorRef unsafe_view(GraphBuilder& graph, TensorRef x, const Shape& asked, std::int64_t sequence) {
  return graph.leaf("aten::_unsafe_view", {x, asked}, strided_view(graph, x, asked), sequence);
}

TensorRef reshaped_view(GraphBuilder& graph, TensorRef x, const Shape& asked,
                        std::int64_t sequence) {
  if (!graph.pytorch().before(2, 1)) {
    // A row-major tensor is handed on with the size as it was asked for.
    return view(graph, x, graph.is_contiguous(x) ? asked : resolve(graph, x, asked), sequence);
  }
  const TensorRef made = strided_view(graph, x, asked);
  graph.leaf_op("aten::_reshape_alias", {x, graph.shape(made), graph.strides(made)}, {made},
                sequence);
  return made;
}

TensorRef reshape(GraphBuilder& graph, TensorRef x, const Shape& asked, std::int64_t sequence) {
  const Shape shape = resolve(graph, x, asked);
  graph.begin_op("aten::reshape", {x, asked}, sequence);
  TensorRef made;
  if (!view_strides(graph, x, shape)) {
    made = unsafe_view(graph, clone(graph, x, sequence), shape, sequence);
  } else {
    made = reshaped_view(graph, x, asked, sequence);
  }
  return graph.end_with(made);
}

TensorRef flatten(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  graph.begin_op("aten::flatten.using_ints", {x, 0, -1}, sequence);
  const TensorRef made = reshaped_view(graph, x, {graph.numel(x)}, sequence);
  return graph.end_with(made);
}

std::vector<TensorRef> split_with_sizes(GraphBuilder& graph, TensorRef x, const Shape& sizes,
                                        int dim, std::int64_t sequence) {
  const Shape strides = graph.strides(x);
  Shape shape = graph.shape(x);
  std::vector<TensorRef> pieces;
  graph.begin_op("aten::split_with_sizes", {x, sizes, dim}, sequence);
  std::int64_t offset = 0;
  for (std::int64_t size : sizes) {
    shape[dim] = size;
    pieces.push_back(as_strided(graph, x, shape, strides, offset * strides[dim], true));
    offset += size;
  }
  return graph.end_with(pieces);
}

}  // namespace perfmodel
