#include "sparse.hpp"

#include <utility>

#include "graph_views.hpp"
#include "memory.hpp"

namespace perfmodel {
TensorRef sparse_coo_tensor(GraphBuilder& graph, TensorRef indices, TensorRef values, Shape shape) {
  const TensorRef made = graph.new_sparse(shape, indices, values);
  const Shape& value_shape = graph.shape(values);
  const DType dtype = graph.dtype(values);
  std::vector<Value> unsafe = {indices, values, shape, kNone, kNone, kNone, kNone};
  std::vector<Value> with_dims = {
      1, 1, shape, indices, values, scalar_type_code(dtype), 1, graph.device_value(), kNone};
  if (!graph.pytorch().before(2, 1)) {  // is_coalesced
    unsafe.emplace_back(kNone);
    with_dims.emplace_back(kNone);
  }
  graph.begin_op("aten::_sparse_coo_tensor_unsafe", std::move(unsafe));
  graph.begin_op("aten::_sparse_coo_tensor_with_dims_and_tensors", std::move(with_dims));
  // The empty tensor that is made first and then given its indices and values.
  const TensorRef no_values = empty(graph, dtype, {0});
  const TensorRef no_indices = empty(graph, DType::kInt64, {1, 0});
  const Shape sizes = {0, value_shape.back()};
  resized(graph, no_values, sizes);
  resize_to(graph, no_indices, no_indices);
  graph.end_op({made});
  graph.end_op({made});
  return made;
}

namespace {
TensorRef sparse_part(GraphBuilder& graph, const char* op, TensorRef sparse, TensorRef part) {
  const TensorRef alias = graph.new_view(part, graph.shape(part), graph.strides(part));
  graph.leaf_op(op, {sparse}, {alias});
  return alias;
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
  graph.end_op({grown});
  return grown;
}

}  // namespace

void add_to_empty_sparse(GraphBuilder& graph, TensorRef kept, TensorRef other) {
  const std::int64_t entries = graph.shape(graph.sparse_values(other))[0];
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
