#include "sparse.hpp"

#include "memory.hpp"
#include "views.hpp"

namespace perfmodel {
TensorRef sparse_coo_tensor(GraphBuilder& graph, TensorRef indices, TensorRef values, Shape shape) {
  const TensorRef made = graph.new_sparse(shape, indices, values);
  const Shape& value_shape = graph.shape(values);
  const DType dtype = graph.dtype(values);
  graph.begin_op("aten::_sparse_coo_tensor_unsafe",
                 {indices, values, shape, kNone, kNone, kNone, kNone, kNone});
  graph.begin_op("aten::_sparse_coo_tensor_with_dims_and_tensors",
                 {1, 1, shape, indices, values, scalar_type_code(dtype), 1, graph.device_value(),
                  kNone, kNone});
  // The empty tensor that is made first and then given its indices and values.
  const TensorRef no_values = empty(graph, dtype, {0});
  const TensorRef no_indices = empty(graph, DType::kInt64, {1, 0});
  const Shape sizes = {0, value_shape.back()};
  graph.leaf_op("aten::resize_", {no_values, sizes, kNone},
                {contiguous_view(graph, no_values, sizes)});
  graph.leaf_op("aten::resize_", {no_indices, Shape{1, 0}, kNone}, {no_indices});
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

}  // namespace perfmodel
