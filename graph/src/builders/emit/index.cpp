#include "index.hpp"

#include "factory.hpp"
#include "memory.hpp"
#include "update.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

// Index tensors may be in host memory; the op brings them to the data's device.
TensorRef to_device_of_model(GraphBuilder& graph, TensorRef index) {
  const bool there = graph.device(index) == graph.device();
  const TensorRef made = there ? index : graph.new_tensor(graph.dtype(index), graph.shape(index));
  to(graph, index, made, {.tensor = {.dtype = false, .layout = false}});
  return made;
}

}  // namespace

// x has one axis of stride 0 instead of the picked ones, the indices have 1 in all others.
void spread_over_picks(GraphBuilder& graph, TensorRef x, const std::vector<TensorRef>& indices) {
  Shape shape, strides, index_shape;
  bool picked = false;
  for (std::size_t i = 0; i < graph.shape(x).size(); ++i) {
    const bool indexed = i < indices.size() && indices[i].exists();
    if (indexed && picked) continue;
    picked |= indexed;
    shape.push_back(indexed ? graph.numel(indices[i]) : graph.shape(x)[i]);
    strides.push_back(indexed ? 0 : graph.strides(x)[i]);
    index_shape.push_back(indexed ? shape.back() : 1);
  }
  as_strided(graph, x, std::move(shape), std::move(strides));
  for (TensorRef index : indices) {
    if (index.exists()) reshape(graph, index, index_shape);
  }
}

namespace {

// One term of the linear index: (index mod size) * stride, on the device of the data.
TensorRef linear_index_term(GraphBuilder& graph, TensorRef index, std::int64_t size,
                            std::int64_t stride) {
  const auto scalar_op = [&](const char* scalar, const char* tensor, TensorRef x,
                             std::int64_t number) {
    const TensorRef made = graph.new_tensor(graph.dtype(x), graph.device(x), graph.shape(x));
    graph.begin_op(scalar, {x, number});
    graph.leaf_op(tensor, {x, wrapped_number(graph)}, {made});
    return graph.end_with(made);
  };
  const TensorRef wrapped =
      scalar_op("aten::remainder.Scalar", "aten::remainder.Tensor", index, size);
  const TensorRef scaled = scalar_op("aten::mul.Scalar", "aten::mul.Tensor", wrapped, stride);
  return to_device_of_model(graph, scaled);
}

}  // namespace

void index_put_accumulate(GraphBuilder& graph, TensorRef made,
                          const std::vector<TensorRef>& indices, TensorRef values) {
  Value::List list;
  for (TensorRef index : indices) list.push_back(index.exists() ? Value(index) : Value(kNone));
  graph.begin_op("aten::_index_put_impl_", {made, list, values, true, true});
  if (!graph.pytorch().on_gpu()) {  // element by element, nothing is sorted
    spread_over_picks(graph, made, indices);
    return graph.end_op({made});
  }
  const Shape shape = graph.shape(made), strides = contiguous_strides(shape);
  TensorRef linear;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (!indices[i].exists()) continue;
    const std::int64_t stride = strides[i] / strides[indices.size() - 1];
    const TensorRef term = linear_index_term(graph, indices[i], shape[i], stride);
    if (linear.exists()) add_(graph, linear, term);
    if (!linear.exists()) linear = term;
  }
  const std::int64_t picked = graph.numel(linear);
  contiguous(graph, values);
  const TensorRef flat = reshape(graph, linear, {-1});
  for (int i = 0; i < 2; ++i) {  // sorted indices and their origins
    empty_like_contiguous(graph, flat);
  }
  graph.begin_op("aten::divide_.Scalar_mode", {flat, 1, "trunc"});
  graph.begin_op("aten::div_.Scalar_mode", {flat, 1, "trunc"});
  graph.leaf_op("aten::div_.Tensor_mode", {flat, wrapped_number(graph), "trunc"}, {flat});
  graph.end_op({flat});
  graph.end_op({flat});
  graph.begin_op("aten::arange",
                 {picked, scalar_type_code(DType::kInt64), 0, graph.device_value(), kNone});
  graph.end_op({fill_arange(graph, empty(graph, DType::kInt64, {0}), picked)});
  graph.end_op({made});
}

TensorRef sorted_order(GraphBuilder& graph, TensorRef x, int dim) {
  const std::int64_t count = graph.numel(x);
  const TensorRef sorted = like(graph, x), order = like(graph, x);
  graph.begin_op("aten::sort", {x, dim, false});
  graph.begin_op("aten::sort.stable", {x, false, dim, false});
  copy(graph, sorted, x);
  graph.begin_op("aten::arange.start",
                 {0, count, scalar_type_code(DType::kInt64), 0, graph.device_value(), kNone});
  const TensorRef counted = fill_arange(graph, empty(graph, DType::kInt64, {0}), count);
  graph.end_op({counted});
  copy(graph, order, as_strided(graph, counted, {count}, {1}));
  graph.end_op({sorted, order});
  graph.end_op({sorted, order});
  return order;
}

void index_add_in_place(GraphBuilder& graph, TensorRef x, TensorRef indices, TensorRef values,
                        Value alpha, std::int64_t sequence) {
  graph.leaf_op("aten::index_add_", {x, 0, indices, values, std::move(alpha)}, {x}, sequence);
}

TensorRef index_matrix(AutogradTape& tape, TensorRef x, TensorRef row, TensorRef column) {
  GraphBuilder& graph = tape.graph();
  const TensorRef rows = slice(tape, x, 0, 0, kSliceEnd);
  const Shape shape = graph.shape(rows);
  const std::int64_t batch = shape[0], picked = graph.numel(row);
  const TensorRef out = graph.new_tensor(graph.dtype(x), {batch, picked});
  graph.begin_op("aten::index.Tensor",
                 {rows, std::vector<TensorRef>{graph.undefined(), row, column}}, tape.sequence());
  std::vector<TensorRef> indices = {row, column};
  for (TensorRef& index : indices) {
    if (graph.device(index) != graph.device()) index = to_device_of_model(graph, index);
  }
  spread_over_picks(graph, rows, {TensorRef{}, indices[0], indices[1]});
  graph.end_op({out});
  return tape.record_unary(
      "IndexBackward0", rows, out, [&graph, shape, row, column](TensorRef gradient) {
        const TensorRef made = new_zeros(graph, gradient, shape);
        index_put_accumulate(graph, made, {TensorRef{}, row, column}, gradient);
        return made;
      });
}

}  // namespace perfmodel
