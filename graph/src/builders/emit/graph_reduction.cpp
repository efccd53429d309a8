#include "graph_reduction.hpp"

#include <algorithm>

#include "graph_views.hpp"
#include "memory.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {
namespace {

struct Reduced {
  std::vector<bool> gone;  // per axis
  Shape kept, dropped;     // the result with them as 1, and without them
  std::int64_t count = 1;  // elements that become one
};

Reduced reduce(const Shape& from, const Shape& axes) {
  Reduced reduced{.gone = std::vector<bool>(from.size(), axes.empty()), .kept = from};
  for (std::int64_t axis : axes) {
    const auto rank = static_cast<std::int64_t>(from.size());
    reduced.gone[(axis + rank) % rank] = true;
  }
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (reduced.gone[i]) {
      reduced.kept[i] = 1;
      reduced.count *= from[i];
    } else {
      reduced.dropped.push_back(from[i]);
    }
  }
  return reduced;
}

TensorRef result(GraphBuilder& graph, TensorRef x, const Reduced& reduced, bool keep_axes) {
  return graph.new_tensor(graph.dtype(x), keep_axes ? reduced.kept : reduced.dropped);
}

// Inside a reduction: a result without the reduced axes is worked on as if it had them, with stride
// 0. On a CPU the result is filled first.
void start_reduction(GraphBuilder& graph, TensorRef out, const Reduced& reduced, bool keep_axes) {
  TensorRef worked_on = out;
  if (!keep_axes) {
    Shape strides(reduced.gone.size(), 0);
    for (std::size_t i = 0, next = 0; i < strides.size(); ++i) {
      if (!reduced.gone[i]) strides[i] = graph.strides(out)[next++];
    }
    worked_on = as_strided(graph, out, reduced.kept, strides);
  }
  if (!graph.pytorch().on_gpu()) fill(graph, worked_on, 0.0);
}

}  // namespace

void begin_reduction(GraphBuilder& graph, TensorRef out, const Shape& from, const Shape& axes,
                     bool keep_axes) {
  start_reduction(graph, out, reduce(from, axes), keep_axes);
}

std::int64_t reduced_count(const Shape& from, const Shape& axes) {
  return reduce(from, axes).count;
}

TensorRef expand_gradient(GraphBuilder& graph, TensorRef gradient, const Shape& from,
                          const Shape& axes, bool keep_axes) {
  if (!keep_axes && !axes.empty()) {
    const Reduced reduced = reduce(from, axes);
    for (std::size_t i = 0; i < from.size(); ++i) {
      if (reduced.gone[i]) gradient = unsqueeze(graph, gradient, static_cast<int>(i));
    }
  }
  return expand(graph, gradient, from);
}

TensorRef sum(GraphBuilder& graph, TensorRef x, const Shape& axes, bool keep_axes,
              std::int64_t sequence) {
  const Reduced reduced = reduce(graph.shape(x), axes);
  const TensorRef out = result(graph, x, reduced, keep_axes);
  graph.begin_op("aten::sum.dim_IntList", {x, axes, keep_axes, kNone}, sequence);
  start_reduction(graph, out, reduced, keep_axes);
  return graph.end_with(out);
}

TensorRef mean(GraphBuilder& graph, TensorRef x, const Shape& axes, bool keep_axes,
               std::int64_t sequence) {
  const Reduced reduced = reduce(graph.shape(x), axes);
  const TensorRef out = result(graph, x, reduced, keep_axes);
  graph.begin_op("aten::mean.dim", {x, axes, keep_axes, kNone}, sequence);
  if (graph.pytorch().on_gpu()) {
    start_reduction(graph, out, reduced, keep_axes);
  } else {  // a sum, then a division
    const int dtype = scalar_type_code(graph.dtype(x));
    graph.begin_op("aten::sum.IntList_out", {x, axes, keep_axes, dtype, out});
    start_reduction(graph, out, reduced, keep_axes);
    graph.end_op({out});
    divide_in_place(graph, out, reduced.count);
  }
  return graph.end_with(out);
}

TensorRef sum(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  graph.begin_op("aten::sum", {x, kNone}, sequence);
  const TensorRef out = sum(graph, x, {}, false);
  return graph.end_with(out);
}

TensorRef cumsum_on_cpu(GraphBuilder& graph, TensorRef x, std::int64_t axis, Value dtype,
                        std::int64_t sequence) {
  const TensorRef sums = like(graph, x);
  graph.begin_op("aten::cumsum", {x, axis, std::move(dtype)}, sequence);
  to_same_dtype(graph, x);
  return graph.end_with(sums);
}

TensorRef mean(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  graph.begin_op("aten::mean", {x, kNone}, sequence);
  const TensorRef out = mean(graph, x, {}, false);
  return graph.end_with(out);
}

TensorRef divide(GraphBuilder& graph, TensorRef x, std::int64_t count, std::int64_t sequence) {
  const TensorRef number = wrapped_number(graph), out = like(graph, x);
  graph.begin_op("aten::div.Scalar", {x, count}, sequence);
  graph.begin_op("aten::div.Tensor", {x, number});
  cast_wrapped_number(graph, number, graph.dtype(x));
  graph.end_op({out});
  return graph.end_with(out);
}

void divide_in_place(GraphBuilder& graph, TensorRef x, std::int64_t count) {
  const TensorRef number = wrapped_number(graph);
  graph.begin_op("aten::div_.Scalar", {x, count});
  graph.begin_op("aten::div_.Tensor", {x, number});
  cast_wrapped_number(graph, number, graph.dtype(x));
  graph.end_op({x});
  graph.end_op({x});
}

TensorRef sum_to(GraphBuilder& graph, TensorRef gradient, const Shape& shape) {
  const Shape from = graph.shape(gradient);
  if (from == shape) return gradient;
  PERFMODEL_CHECK(from.size() >= shape.size());
  const std::size_t leading = from.size() - shape.size();
  Shape axes;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (i < leading || (shape[i - leading] == 1 && from[i] != 1)) {
      axes.push_back(static_cast<std::int64_t>(i));
    }
  }
  const TensorRef summed = sum(graph, gradient, axes, true);
  return leading == 0 ? summed : view(graph, summed, shape);
}

}  // namespace perfmodel
