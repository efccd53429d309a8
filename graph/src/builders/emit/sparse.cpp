#include "sparse.hpp"

#include <utility>

#include "graph_views.hpp"
#include "memory.hpp"

namespace perfmodel {
std::int64_t entries_of(const GraphBuilder& graph, TensorRef sparse) {
  return graph.shape(graph.sparse_values(sparse))[0];
}

void ask_entries(GraphBuilder& graph, TensorRef sparse) {
  graph.leaf_op("aten::_nnz", {sparse}, {entries_of(graph, sparse)});
}

void ask_coalesced(GraphBuilder& graph, TensorRef sparse, bool answer) {
  graph.leaf_op("aten::is_coalesced", {sparse}, {answer});
}

void set_coalesced(GraphBuilder& graph, TensorRef sparse, bool coalesced) {
  graph.leaf_op("aten::_coalesced_", {sparse, coalesced}, {sparse});
}

void ask_dim(GraphBuilder& graph, const char* op, TensorRef sparse, std::int64_t answer) {
  graph.leaf_op(op, {sparse}, {answer});
}

void make_room(GraphBuilder& graph, DType dtype, std::int64_t width) {
  const TensorRef no_values = empty(graph, dtype, {0});
  const TensorRef no_indices = empty(graph, DType::kInt64, {1, 0});
  resized(graph, no_values, {0, width});
  resize_to(graph, no_indices, no_indices);
}

namespace {

void with_dims(GraphBuilder& graph, TensorRef made) {
  const TensorRef indices = graph.sparse_indices(made), values = graph.sparse_values(made);
  const DType dtype = graph.dtype(values);
  std::vector<Value> arguments = {
      1,    1, graph.shape(made), indices, values, scalar_type_code(dtype), 1, graph.device_value(),
      kNone};
  if (!graph.pytorch().before(2, 1)) arguments.emplace_back(kNone);  // is_coalesced
  graph.begin_op("aten::_sparse_coo_tensor_with_dims_and_tensors", std::move(arguments));
  make_room(graph, dtype, graph.shape(values).back());
  graph.end_op({made});
}

}  // namespace

void read_index(GraphBuilder& graph, TensorRef index) {
  const TensorRef read = graph.new_tensor(DType::kInt64, GraphBuilder::cpu(), graph.shape(index));
  to(graph, index, read, {.tensor = {.dtype = false, .layout = false}});
}

void make_unsafe(GraphBuilder& graph, TensorRef made) {
  std::vector<Value> arguments = {graph.sparse_indices(made),
                                  graph.sparse_values(made),
                                  graph.shape(made),
                                  kNone,
                                  kNone,
                                  kNone,
                                  kNone};
  if (!graph.pytorch().before(2, 1)) arguments.emplace_back(kNone);  // is_coalesced
  graph.begin_op("aten::_sparse_coo_tensor_unsafe", std::move(arguments));
  with_dims(graph, made);
  graph.end_op({made});
}

namespace {

// The least or the largest index of each axis. A CPU reduces into a view with the axis.
TensorRef extreme_index(GraphBuilder& graph, const char* op, TensorRef indices) {
  const Shape one = {graph.shape(indices)[0]}, with_axis = {one[0], 1};
  const TensorRef value = graph.new_tensor(DType::kInt64, one);
  const TensorRef place = graph.new_tensor(DType::kInt64, one);
  graph.begin_op(op, {indices, 1, false});
  if (!graph.pytorch().on_gpu()) {
    const auto change = [&](const char* changes, TensorRef x, const Shape& to) {
      const TensorRef view = contiguous_view(graph, x, to);
      graph.begin_op(changes, {x, 1});
      graph.leaf_op("aten::as_strided_", {x, to, contiguous_strides(to), kNone}, {view});
      return graph.end_with(view);
    };
    const TensorRef values = change("aten::unsqueeze_", value, with_axis);
    const TensorRef places = change("aten::unsqueeze_", place, with_axis);
    change("aten::squeeze_.dim", values, one);
    change("aten::squeeze_.dim", places, one);
  }
  graph.end_op({value, place});
  return value;
}

// The host compares the least and the largest index with the shape.
void check_indices(GraphBuilder& graph, TensorRef indices) {
  const TensorRef least = extreme_index(graph, "aten::min.dim", indices);
  const TensorRef largest = extreme_index(graph, "aten::max.dim", indices);
  if (!graph.pytorch().on_gpu()) return;
  for (const TensorRef extreme : {least, largest}) read_index(graph, extreme);
}

}  // namespace

TensorRef sparse_coo_tensor(GraphBuilder& graph, TensorRef indices, TensorRef values, Shape shape) {
  const TensorRef made = graph.new_sparse(std::move(shape), indices, values);
  make_unsafe(graph, made);
  return made;
}

TensorRef checked_sparse_coo_tensor(GraphBuilder& graph, SparseMaker maker, TensorRef indices,
                                    TensorRef values, Shape shape) {
  const TensorRef made = graph.new_sparse(shape, indices, values);
  std::vector<Value> arguments = {indices, values, shape, kNone, kNone, kNone, kNone};
  if (maker == SparseMaker::kFunction) {
    for (const TensorRef part : {values, indices}) {
      graph.leaf_op(
          "aten::to.device",
          {part, graph.device_value(), scalar_type_code(graph.dtype(part)), false, false, kNone},
          {part});
    }
    arguments[3] = scalar_type_code(graph.dtype(values));
    arguments[4] = 1;
    arguments[5] = graph.device_value();
  }
  if (!graph.pytorch().before(2, 1)) arguments.emplace_back(kNone);  // is_coalesced
  graph.begin_op("aten::sparse_coo_tensor.indices_size", std::move(arguments));
  if (graph.pytorch().before(2, 0)) check_indices(graph, indices);
  with_dims(graph, made);
  return graph.end_with(made);
}

namespace {
TensorRef sparse_part(GraphBuilder& graph, const char* op, TensorRef sparse, TensorRef part) {
  return graph.leaf(op, {sparse}, graph.new_view(part, graph.shape(part), graph.strides(part)));
}
}  // namespace

TensorRef indices_of(GraphBuilder& graph, TensorRef sparse) {
  return sparse_part(graph, "aten::_indices", sparse, graph.sparse_indices(sparse));
}
TensorRef values_of(GraphBuilder& graph, TensorRef sparse) {
  return sparse_part(graph, "aten::_values", sparse, graph.sparse_values(sparse));
}

TensorRef share_sparse(GraphBuilder& graph, TensorRef sparse) {
  indices_of(graph, sparse);  // both are asked whether they are contiguous
  values_of(graph, sparse);
  const TensorRef values = values_of(graph, sparse);
  const TensorRef indices = indices_of(graph, sparse);
  return sparse_coo_tensor(graph, indices, values, graph.shape(sparse));
}

namespace {

// The kept tensor gets one sparse axis and one dense axis, as `other` has them; no entries yet.
void resize_as_sparse(GraphBuilder& graph, TensorRef kept, TensorRef other) {
  const std::int64_t dim = graph.shape(other).back();
  const TensorRef values = graph.sparse_values(kept), indices = graph.sparse_indices(kept);
  graph.begin_op("aten::resize_as_", {kept, other, kNone});
  graph.leaf_op("aten::sparse_dim", {kept}, {graph.shape(indices)[0]});
  graph.leaf_op("aten::sparse_dim", {other}, {1});
  graph.leaf_op("aten::dense_dim", {other}, {1});
  graph.leaf_op("aten::sparse_dim", {other}, {1});
  const TensorRef new_values = resized(graph, values, {0, dim});
  const TensorRef new_indices = resized(graph, indices, {1, 0});
  graph.end_op({kept});
  graph.set_sparse_parts(kept, new_indices, new_values);
}

TensorRef copy_indices(GraphBuilder& graph, TensorRef kept, TensorRef other) {
  const TensorRef target = indices_of(graph, kept), source = indices_of(graph, other);
  graph.begin_op("aten::resize_as_", {target, source, kNone});
  const TensorRef grown = resized(graph, target, graph.shape(source));
  graph.end_op({grown});
  copy(graph, grown, indices_of(graph, other));
  return grown;
}

TensorRef copy_scaled_values(GraphBuilder& graph, TensorRef kept, TensorRef other) {
  const TensorRef target = values_of(graph, kept), source = values_of(graph, other);
  const TensorRef grown = contiguous_view(graph, target, graph.shape(source));
  const TensorRef one = wrapped_number(graph);
  graph.begin_op("aten::mul.out", {source, one, target});
  cast_wrapped_number(graph, one, graph.dtype(source));
  return graph.end_with(grown);
}

}  // namespace

void add_to_empty_sparse(GraphBuilder& graph, TensorRef kept, TensorRef other) {
  const std::int64_t entries = entries_of(graph, other);
  graph.begin_op("aten::add_.Tensor", {kept, other, 1});
  graph.begin_op("aten::add.out", {kept, other, 1, kept});
  graph.leaf_op("aten::_nnz", {other}, {entries});
  graph.leaf_op("aten::_nnz", {kept}, {0});
  resize_as_sparse(graph, kept, other);
  const TensorRef indices = copy_indices(graph, kept, other);
  const TensorRef values = copy_scaled_values(graph, kept, other);
  graph.leaf_op("aten::_nnz", {other}, {entries});
  narrow(graph, indices, 1, 0, entries);
  narrow(graph, values, 0, 0, entries);
  graph.leaf_op("aten::is_coalesced", {other}, {false});
  graph.leaf_op("aten::_coalesced_", {kept, false}, {kept});
  graph.end_op({kept});
  graph.end_op({kept});
  graph.set_sparse_parts(kept, indices, values);
}

}  // namespace perfmodel
