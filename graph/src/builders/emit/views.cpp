#include "views.hpp"

#include "concat.hpp"
#include "memory.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

namespace {
AutogradTape::Backward reshape_to(GraphBuilder& graph, const Shape& shape) {
  return [&graph, shape](TensorRef gradient) -> std::vector<TensorRef> {
    return {reshape(graph, gradient, shape)};
  };
}
}  // namespace

namespace {
TensorRef reshaped_view(AutogradTape& tape, TensorRef x, const Shape& asked) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = reshaped_view(graph, x, asked, tape.sequence());
  tape.record(graph.pytorch().before(2, 1) ? "ReshapeAliasBackward0" : "ViewBackward0", {x}, out,
              reshape_to(graph, graph.shape(x)));
  return out;
}
}  // namespace

TensorRef flatten(AutogradTape& tape, TensorRef x, int from_dim) {
  GraphBuilder& graph = tape.graph();
  const Shape& from = graph.shape(x);
  Shape shape(from.begin(), from.begin() + from_dim);
  shape.push_back(1);
  for (std::size_t i = static_cast<std::size_t>(from_dim); i < from.size(); ++i) {
    shape.back() *= from[i];
  }
  graph.begin_op("aten::flatten.using_ints", {x, from_dim, -1}, tape.sequence());
  const TensorRef out = reshaped_view(tape, x, shape);
  graph.end_op({out});
  return out;
}

TensorRef view(AutogradTape& tape, TensorRef x, const Shape& asked) {
  const TensorRef out = view(tape.graph(), x, asked, tape.sequence());
  tape.record("ViewBackward0", {x}, out, reshape_to(tape.graph(), tape.graph().shape(x)));
  return out;
}

TensorRef unsafe_view(AutogradTape& tape, TensorRef x, const Shape& asked) {
  const TensorRef out = unsafe_view(tape.graph(), x, asked, tape.sequence());
  tape.record("UnsafeViewBackward0", {x}, out, reshape_to(tape.graph(), tape.graph().shape(x)));
  return out;
}

namespace {
TensorRef clone(AutogradTape& tape, TensorRef x) {
  const TensorRef made = clone(tape.graph(), x, tape.sequence());
  tape.record("CloneBackward0", {x}, made,
              [](TensorRef gradient) -> std::vector<TensorRef> { return {gradient}; });
  return made;
}
}  // namespace

TensorRef reshape(AutogradTape& tape, TensorRef x, const Shape& asked) {
  GraphBuilder& graph = tape.graph();
  const Shape shape = resolve(graph, x, asked);
  graph.begin_op("aten::reshape", {x, asked}, tape.sequence());
  TensorRef made;
  if (!view_strides(graph, x, shape)) {
    made = unsafe_view(tape, clone(tape, x), shape);
  } else {
    made = reshaped_view(tape, x, graph.is_contiguous(x) ? asked : shape);
  }
  graph.end_op({made});
  return made;
}

TensorRef t(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = t(graph, x, tape.sequence());
  tape.record("TBackward0", {x}, out, [&graph](TensorRef gradient) -> std::vector<TensorRef> {
    return {t(graph, gradient)};
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

TensorRef permute(AutogradTape& tape, TensorRef x, const Shape& axes) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = permute(graph, x, axes, tape.sequence());
  Shape back(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    back[axes[i]] = static_cast<std::int64_t>(i);
  }
  tape.record("PermuteBackward0", {x}, out,
              [&graph, back](TensorRef gradient) -> std::vector<TensorRef> {
                return {permute(graph, gradient, back)};
              });
  return out;
}

TensorRef unsqueeze(AutogradTape& tape, TensorRef x, int dim) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = unsqueeze(graph, x, dim, tape.sequence());
  tape.record("UnsqueezeBackward0", {x}, out,
              [&graph, dim](TensorRef gradient) -> std::vector<TensorRef> {
                return {squeeze(graph, gradient, dim)};
              });
  return out;
}

TensorRef squeeze(AutogradTape& tape, TensorRef x, int dim) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = squeeze(graph, x, dim, tape.sequence());
  tape.record("SqueezeBackward1", {x}, out,
              [&graph, dim](TensorRef gradient) -> std::vector<TensorRef> {
                return {unsqueeze(graph, gradient, dim)};
              });
  return out;
}

TensorRef expand(AutogradTape& tape, TensorRef x, const Shape& shape) {
  const TensorRef out = expand(tape.graph(), x, shape, tape.sequence());
  const Shape from = tape.graph().shape(x);
  tape.record("ExpandBackward0", {x}, out,
              [&tape, from](TensorRef gradient) -> std::vector<TensorRef> {
                return {tape.sum_to(gradient, from)};
              });
  return out;
}

TensorRef slice(AutogradTape& tape, TensorRef x, int dim, std::int64_t start, std::int64_t end) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = slice(graph, x, dim, start, end, tape.sequence());
  tape.record("SliceBackward0", {x}, out,
              [&graph, x, dim, start, end](TensorRef gradient) -> std::vector<TensorRef> {
                const Shape& shape = graph.shape(x);
                graph.begin_op("aten::slice_backward", {gradient, shape, dim, start, end, 1});
                const TensorRef made = zeros(graph, graph.dtype(x), shape);
                copy(graph, slice(graph, made, dim, start, end), gradient);
                graph.end_op({made});
                return {made};
              });
  return out;
}

TensorRef select(AutogradTape& tape, TensorRef x, int dim, std::int64_t index) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = select(graph, x, dim, index, tape.sequence());
  tape.record("SelectBackward0", {x}, out,
              [&graph, x, dim, index](TensorRef gradient) -> std::vector<TensorRef> {
                const Shape& shape = graph.shape(x);
                graph.begin_op("aten::select_backward", {gradient, shape, dim, index});
                const TensorRef made = zeros(graph, graph.dtype(x), shape);
                copy(graph, select(graph, made, dim, index), gradient);
                graph.end_op({made});
                return {made};
              });
  return out;
}

TensorRef contiguous(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  if (graph.is_contiguous(x)) return x;
  graph.begin_op("aten::contiguous", {x, 0}, tape.sequence());
  const TensorRef made = clone(tape, x);
  graph.end_op({made});
  return made;
}

TensorRef squeeze_last(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  Shape shape = graph.shape(x), strides = graph.strides(x);
  const int dim = static_cast<int>(shape.size()) - 1;
  PERFMODEL_CHECK(shape.back() == 1);
  shape.pop_back();
  strides.pop_back();
  graph.begin_op("aten::squeeze.dim", {x, -1}, tape.sequence());
  const TensorRef out = as_strided(graph, x, std::move(shape), std::move(strides));
  graph.end_op({out});
  tape.record("SqueezeBackward1", {x}, out,
              [&graph, dim](TensorRef gradient) -> std::vector<TensorRef> {
                return {unsqueeze(graph, gradient, dim)};
              });
  return out;
}

std::vector<TensorRef> split_with_sizes(AutogradTape& tape, TensorRef x, const Shape& sizes,
                                        int dim) {
  GraphBuilder& graph = tape.graph();
  const std::vector<TensorRef> pieces = split_with_sizes(graph, x, sizes, dim, tape.sequence());
  tape.record("SplitWithSizesBackward0", {x}, pieces,
              [&graph, dim, pieces](std::vector<TensorRef> gradients) -> std::vector<TensorRef> {
                // Gradients of unused pieces are zero.
                for (std::size_t i = 0; i < gradients.size(); ++i) {
                  if (gradients[i].exists()) continue;
                  gradients[i] = zeros(graph, graph.dtype(pieces[i]), graph.shape(pieces[i]));
                }
                return {cat(graph, gradients, dim)};
              });
  return pieces;
}

}  // namespace perfmodel
