#include "views.hpp"

#include <algorithm>
#include <utility>

#include "perfmodel/result.hpp"

namespace perfmodel {
TensorRef contiguous_view(GraphBuilder& graph, TensorRef x, Shape shape) {
  Shape strides = contiguous_strides(shape);
  return graph.new_view(x, std::move(shape), std::move(strides));
}

// `asked` with its -1 replaced.
Shape resolve(const GraphBuilder& graph, TensorRef x, Shape asked) {
  std::int64_t known = 1;
  for (std::int64_t size : asked) known *= size < 0 ? 1 : size;
  for (std::int64_t& size : asked) {
    if (size < 0) size = graph.numel(x) / known;
  }
  return asked;
}

TensorRef as_strided(GraphBuilder& graph, TensorRef x, Shape shape, Shape strides,
                     std::int64_t offset, bool give_offset) {
  const TensorRef view = graph.new_view(x, shape, strides, offset);
  const Value storage_offset = give_offset ? Value(graph.offset(view)) : Value(kNone);
  graph.leaf_op("aten::as_strided", {x, shape, strides, storage_offset}, {view});
  return view;
}

TensorRef transpose(GraphBuilder& graph, TensorRef x, int dim0, int dim1, std::int64_t sequence) {
  Shape shape = graph.shape(x), strides = graph.strides(x);
  std::swap(shape[static_cast<std::size_t>(dim0)], shape[static_cast<std::size_t>(dim1)]);
  std::swap(strides[static_cast<std::size_t>(dim0)], strides[static_cast<std::size_t>(dim1)]);
  graph.begin_op("aten::transpose.int", {x, dim0, dim1}, sequence);
  const TensorRef view = as_strided(graph, x, std::move(shape), std::move(strides));
  graph.end_op({view});
  return view;
}

TensorRef t(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  graph.begin_op("aten::t", {x}, sequence);
  const TensorRef view = transpose(graph, x, 0, 1);
  graph.end_op({view});
  return view;
}

TensorRef slice(GraphBuilder& graph, TensorRef x, int dim, std::int64_t start, std::int64_t end,
                std::int64_t sequence) {
  const auto axis = static_cast<std::size_t>(dim);
  Shape shape = graph.shape(x), strides = graph.strides(x);
  shape[axis] = std::min(end, shape[axis]) - start;
  graph.begin_op("aten::slice.Tensor", {x, dim, start, end, 1}, sequence);
  const std::int64_t offset = start * strides[axis];
  const TensorRef view = as_strided(graph, x, std::move(shape), std::move(strides), offset, true);
  graph.end_op({view});
  return view;
}

TensorRef select(GraphBuilder& graph, TensorRef x, int dim, std::int64_t index,
                 std::int64_t sequence) {
  Shape shape = graph.shape(x), strides = graph.strides(x);
  const std::int64_t offset = index * strides[static_cast<std::size_t>(dim)];
  shape.erase(shape.begin() + dim);
  strides.erase(strides.begin() + dim);
  graph.begin_op("aten::select.int", {x, dim, index}, sequence);
  const TensorRef view = as_strided(graph, x, std::move(shape), std::move(strides), offset, true);
  graph.end_op({view});
  return view;
}

TensorRef narrow(GraphBuilder& graph, TensorRef x, int dim, std::int64_t start,
                 std::int64_t length) {
  graph.begin_op("aten::narrow", {x, dim, start, length});
  const TensorRef view = slice(graph, x, dim, start, start + length);
  graph.end_op({view});
  return view;
}

TensorRef squeeze(GraphBuilder& graph, TensorRef x) {
  Shape shape, strides;
  for (std::size_t i = 0; i < graph.shape(x).size(); ++i) {
    if (graph.shape(x)[i] == 1) continue;
    shape.push_back(graph.shape(x)[i]);
    strides.push_back(graph.strides(x)[i]);
  }
  graph.begin_op("aten::squeeze", {x});
  const TensorRef view = as_strided(graph, x, std::move(shape), std::move(strides));
  graph.end_op({view});
  return view;
}

TensorRef squeeze(GraphBuilder& graph, TensorRef x, int dim) {
  Shape shape = graph.shape(x), strides = graph.strides(x);
  shape.erase(shape.begin() + dim);
  strides.erase(strides.begin() + dim);
  graph.begin_op("aten::squeeze.dim", {x, dim});
  const TensorRef view = as_strided(graph, x, std::move(shape), std::move(strides));
  graph.end_op({view});
  return view;
}

TensorRef unsqueeze(GraphBuilder& graph, TensorRef x, int dim, std::int64_t sequence) {
  const auto axis = static_cast<std::size_t>(dim);
  Shape shape = graph.shape(x), strides = graph.strides(x);
  const std::int64_t stride = axis < shape.size() ? shape[axis] * strides[axis] : 1;
  shape.insert(shape.begin() + dim, 1);
  strides.insert(strides.begin() + dim, stride);
  graph.begin_op("aten::unsqueeze", {x, dim}, sequence);
  const TensorRef view = as_strided(graph, x, std::move(shape), std::move(strides));
  graph.end_op({view});
  return view;
}

TensorRef expand(GraphBuilder& graph, TensorRef x, Shape shape) {
  // Axes that x lacks or has with size 1 get stride 0.
  Shape strides(shape.size(), 0);
  const std::size_t missing = shape.size() - graph.shape(x).size();
  for (std::size_t i = missing; i < shape.size(); ++i) {
    if (graph.shape(x)[i - missing] == shape[i]) strides[i] = graph.strides(x)[i - missing];
  }
  graph.begin_op("aten::expand", {x, shape, false});
  const TensorRef view = as_strided(graph, x, std::move(shape), std::move(strides));
  graph.end_op({view});
  return view;
}

TensorRef view(GraphBuilder& graph, TensorRef x, const Shape& asked, std::int64_t sequence) {
  PERFMODEL_CHECK(graph.is_contiguous(x));
  const TensorRef made = contiguous_view(graph, x, resolve(graph, x, asked));
  graph.leaf_op("aten::view", {x, asked}, {made}, sequence);
  return made;
}

TensorRef reshaped_view(GraphBuilder& graph, TensorRef x, const Shape& shape,
                        std::int64_t sequence) {
  if (!graph.pytorch().before(2, 1)) return view(graph, x, shape, sequence);
  PERFMODEL_CHECK(graph.is_contiguous(x));
  const TensorRef made = contiguous_view(graph, x, shape);
  graph.leaf_op("aten::_reshape_alias", {x, shape, contiguous_strides(shape)}, {made}, sequence);
  return made;
}

TensorRef reshape(GraphBuilder& graph, TensorRef x, const Shape& asked, std::int64_t sequence) {
  graph.begin_op("aten::reshape", {x, asked}, sequence);
  const TensorRef made = reshaped_view(graph, x, resolve(graph, x, asked), sequence);
  graph.end_op({made});
  return made;
}

// With a gradient.

TensorRef flatten(AutogradTape& tape, TensorRef x, int from_dim) {
  GraphBuilder& graph = tape.graph();
  const Shape from = graph.shape(x);
  Shape shape(from.begin(), from.begin() + from_dim);
  shape.push_back(1);
  for (std::size_t i = static_cast<std::size_t>(from_dim); i < from.size(); ++i) {
    shape.back() *= from[i];
  }
  graph.begin_op("aten::flatten.using_ints", {x, from_dim, -1}, tape.sequence());
  const TensorRef out = reshaped_view(graph, x, shape, tape.sequence());
  graph.end_op({out});
  tape.record(graph.pytorch().before(2, 1) ? "ReshapeAliasBackward0" : "ViewBackward0", {x}, out,
              [&graph, from](TensorRef gradient) -> std::vector<TensorRef> {
                return {reshape(graph, gradient, from)};
              });
  return out;
}

TensorRef view(AutogradTape& tape, TensorRef x, const Shape& asked) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = view(graph, x, asked, tape.sequence());
  tape.record("ViewBackward0", {x}, out, [&graph, x](TensorRef gradient) -> std::vector<TensorRef> {
    return {reshape(graph, gradient, graph.shape(x))};
  });
  return out;
}

TensorRef transpose(AutogradTape& tape, TensorRef x, int dim0, int dim1) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = transpose(graph, x, dim0, dim1, tape.sequence());
  tape.record("TransposeBackward0", {x}, out,
              [&graph, dim0, dim1](TensorRef gradient) -> std::vector<TensorRef> {
                return {transpose(graph, gradient, dim0, dim1)};
              });
  return out;
}

}  // namespace perfmodel
