#include "sparse_update.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "factory.hpp"
#include "graph_views.hpp"
#include "index.hpp"
#include "memory.hpp"
#include "update.hpp"

namespace perfmodel {
namespace {

// weight += alpha * gradient for a sparse gradient whose indices may repeat.
void add_sparse_on_gpu(GraphBuilder& graph, TensorRef dense, TensorRef sparse, Value alpha) {
  ask_entries(graph, sparse);
  const TensorRef values = values_of(graph, sparse);
  to_same_dtype(graph, values);
  const TensorRef indices = indices_of(graph, sparse);
  ask_coalesced(graph, sparse, false);
  const TensorRef rows = squeeze(graph, indices, 0);
  const Shape shape = graph.shape(dense);
  const TensorRef target = view(graph, dense, shape);
  const TensorRef source = reshape(graph, values, {entries_of(graph, sparse), shape[1]});
  index_add_in_place(graph, target, rows, source, std::move(alpha));
}

void add_sparse_on_cpu(GraphBuilder& graph, TensorRef dense, TensorRef sparse) {
  graph.begin_op("aten::resize_as_", {dense, dense, kNone});
  resize_to(graph, dense, dense);
  graph.end_op({dense});
  ask_entries(graph, sparse);
  ask_dim(graph, "aten::sparse_dim", sparse, 1);
  const TensorRef values = values_of(graph, sparse);
  ask_coalesced(graph, sparse, false);
  indices_of(graph, sparse);
  to_same_dtype(graph, values);
  ask_dim(graph, "aten::sparse_dim", sparse, 1);
  ask_entries(graph, sparse);
}

// Entries are sorted by a CPU's op, then merged in a loop without ops.
void coalesce_on_cpu(GraphBuilder& graph, TensorRef sparse, TensorRef made, std::int64_t distinct) {
  ask_coalesced(graph, sparse, false);
  ask_entries(graph, sparse);
  const TensorRef indices = indices_of(graph, sparse), values = values_of(graph, sparse);
  ask_dim(graph, "aten::sparse_dim", sparse, 1);
  ask_dim(graph, "aten::dense_dim", sparse, 1);
  ask_entries(graph, sparse);
  const TensorRef rows = squeeze(graph, indices, 0);
  make_room(graph, graph.dtype(values), graph.shape(values).back());
  const TensorRef new_indices = empty(graph, DType::kInt64, graph.shape(indices));
  const TensorRef new_values = empty(graph, graph.dtype(values), graph.shape(values));
  sorted_order(graph, rows, 0);
  set_coalesced(graph, made, true);
  const TensorRef kept_indices = narrow(graph, new_indices, 1, 0, distinct);
  const TensorRef kept_values = narrow(graph, new_values, 0, 0, distinct);
  graph.set_sparse_parts(made, kept_indices, kept_values);
}

// An empty sparse tensor, whose parts will get two axes.
TensorRef empty_sparse(GraphBuilder& graph, DType dtype) {
  graph.begin_op("aten::empty.memory_format",
                 {Shape{0}, scalar_type_code(dtype), 1, graph.device_value(), kNone, kNone});
  empty(graph, dtype, {0});
  empty(graph, DType::kInt64, {1, 0});
  const TensorRef indices = empty(graph, DType::kInt64, {1, 0});
  const TensorRef values = empty(graph, dtype, {0});
  const TensorRef made = graph.new_sparse({0}, indices, values);
  return graph.end_with(made);
}

// A copy of the indices in their memory order.
TensorRef clone_in_order(GraphBuilder& graph, TensorRef x) {
  const TensorRef made =
      graph.new_tensor(graph.dtype(x), graph.device(x), graph.shape(x), graph.strides(x));
  graph.begin_op("aten::clone", {x, kNone});
  allocate_strided(graph, made, graph.strides(x));
  copy(graph, made, x);
  return graph.end_with(made);
}

void select_rows_into(GraphBuilder& graph, TensorRef from, TensorRef rows, TensorRef made) {
  graph.begin_op("aten::index_select.out", {from, 0, rows, made});
  if (!graph.pytorch().on_gpu()) {  // the width of a row is read off one of each
    select(graph, from, 0, 0);
    select(graph, made, 0, 0);
  }
  graph.end_op({made});
}

// PyTorch 1.13 fills a tensor that is there, for which it flattens the indices anew.
TensorRef sparse_mask_1_13(GraphBuilder& graph, TensorRef dense, TensorRef mask) {
  const Shape shape = graph.shape(dense);
  const std::int64_t entries = entries_of(graph, mask), width = shape.back();
  const DType dtype = graph.dtype(dense);
  const TensorRef hollow = empty_sparse(graph, dtype);
  ask_coalesced(graph, mask, true);
  const TensorRef made =
      graph.new_sparse(shape, graph.sparse_indices(hollow), graph.sparse_values(hollow));
  graph.begin_op("aten::resize_as_sparse_", {hollow, mask});
  ask_dim(graph, "aten::sparse_dim", hollow, 1);
  ask_dim(graph, "aten::sparse_dim", mask, 1);
  ask_dim(graph, "aten::dense_dim", hollow, 0);
  ask_dim(graph, "aten::dense_dim", mask, 1);
  ask_dim(graph, "aten::dense_dim", mask, 1);
  ask_dim(graph, "aten::sparse_dim", mask, 1);
  const TensorRef no_values = resized(graph, graph.sparse_values(hollow), {0, width});
  resize_to(graph, graph.sparse_indices(hollow), graph.sparse_indices(hollow));
  graph.end_op({made});
  graph.set_sparse_parts(made, graph.sparse_indices(hollow), no_values);
  ask_entries(graph, mask);
  ask_dim(graph, "aten::sparse_dim", mask, 1);
  const TensorRef indices = indices_of(graph, mask);
  values_of(graph, mask);
  values_of(graph, made);
  const TensorRef values = empty(graph, dtype, {entries, width});
  const TensorRef copied = clone_in_order(graph, indices);
  ask_coalesced(graph, mask, true);
  set_coalesced(graph, made, true);
  ask_entries(graph, mask);
  const TensorRef new_indices = narrow(graph, copied, 1, 0, entries);
  graph.set_sparse_parts(made, new_indices, narrow(graph, values, 0, 0, entries));
  ask_entries(graph, mask);
  const TensorRef rows = zeros(graph, DType::kInt64, {entries});
  ask_dim(graph, "aten::sparse_dim", mask, 1);
  mul_scalar_(graph, rows, shape[0]);
  add_(graph, rows, select(graph, indices, 0, 0));
  ask_dim(graph, "aten::dense_dim", mask, 1);
  ask_dim(graph, "aten::dense_dim", mask, 1);
  ask_dim(graph, "aten::sparse_dim", mask, 1);
  select_rows_into(graph, view(graph, dense, {-1, width}), rows, values);
  return made;
}

// The rows of the dense tensor at the indices of the sparse one, times its values.
TensorRef mul_dense_by_sparse(GraphBuilder& graph, TensorRef dense, TensorRef sparse) {
  graph.begin_op("aten::mul.Tensor", {dense, sparse});
  empty_sparse(graph, graph.dtype(dense));
  const TensorRef indices = indices_of(graph, sparse), values = values_of(graph, sparse);
  const TensorRef rows = select(graph, indices, 0, 0);
  const TensorRef expanded = expand(graph, dense, graph.shape(dense));
  const TensorRef picked = like(graph, values);
  graph.leaf_op("aten::index.Tensor", {expanded, std::vector<TensorRef>{rows}}, {picked});
  const TensorRef copied = clone_in_order(graph, indices);
  const TensorRef product = mul(graph, picked, values);
  const TensorRef made = graph.new_sparse(graph.shape(dense), copied, product);
  set_coalesced(graph, made, true);
  return graph.end_with(made);
}

// PyTorch 2 multiplies by a sparse tensor of ones. From its sources: no recording shows it.
TensorRef sparse_mask_2(GraphBuilder& graph, TensorRef dense, TensorRef mask) {
  ask_entries(graph, mask);
  const TensorRef mask_values = values_of(graph, mask), indices = indices_of(graph, mask);
  const TensorRef one = ones(graph, graph.dtype(dense), {1});
  const Shape shape = graph.shape(mask_values);
  graph.begin_op("aten::expand_as", {one, mask_values});
  const TensorRef all_ones = expand(graph, one, shape);
  graph.end_op({all_ones});
  const TensorRef sparse_ones = checked_sparse_coo_tensor(graph, SparseMaker::kConstructor, indices,
                                                          all_ones, graph.shape(dense));
  ask_coalesced(graph, mask, true);
  set_coalesced(graph, sparse_ones, true);
  return mul_dense_by_sparse(graph, dense, sparse_ones);
}

}  // namespace

void add_sparse_(GraphBuilder& graph, TensorRef dense, TensorRef sparse, Value alpha) {
  graph.begin_op("aten::add_.Tensor", {dense, sparse, alpha});
  graph.begin_op("aten::add.out", {dense, sparse, alpha, dense});
  if (graph.device(dense) == GraphBuilder::cpu()) {
    add_sparse_on_cpu(graph, dense, sparse);
  } else {
    add_sparse_on_gpu(graph, dense, sparse, alpha);
  }
  graph.end_op({dense});
  graph.end_op({dense});
}

std::int64_t expected_distinct_rows(std::int64_t rows, std::int64_t lookups) {
  const auto e = static_cast<double>(rows), n = static_cast<double>(lookups);
  const double distinct = rows <= 1 ? e : -e * std::expm1(n * std::log1p(-1 / e));
  return std::clamp<std::int64_t>(std::llround(distinct), std::min<std::int64_t>(1, lookups),
                                  lookups);
}

void coalesce_on_gpu(GraphBuilder& graph, TensorRef sparse, TensorRef made) {
  const std::int64_t entries = entries_of(graph, sparse);
  const TensorRef indices = graph.sparse_indices(made), merged = graph.sparse_values(made);
  ask_entries(graph, sparse);
  ask_coalesced(graph, sparse, false);
  values_of(graph, sparse);
  ask_dim(graph, "aten::sparse_dim", sparse, 1);
  const TensorRef rows = squeeze(graph, indices_of(graph, sparse), 0);
  const TensorRef sorted = contiguous_view(graph, indices, {entries});
  graph.begin_op("aten::clone", {rows, 0});
  allocate_like(graph, sorted, rows);
  copy(graph, sorted, rows);
  graph.end_op({sorted});
  empty(graph, DType::kInt64, {entries});  // places of entries before the sort
  empty(graph, DType::kInt64, {entries});  // begins of runs of equal entries
  resize_to(graph, sorted, indices);
  empty_into(graph, merged);
  make_unsafe(graph, made);
  set_coalesced(graph, made, true);
}

TensorRef coalesce(GraphBuilder& graph, TensorRef sparse, std::int64_t distinct) {
  const TensorRef values = graph.sparse_values(sparse);
  const TensorRef merged =
      graph.new_tensor(graph.dtype(values), {distinct, graph.shape(values).back()});
  const TensorRef made =
      graph.new_sparse(graph.shape(sparse), graph.new_tensor(DType::kInt64, {1, distinct}), merged);
  graph.begin_op("aten::coalesce", {sparse});
  ask_coalesced(graph, sparse, false);
  graph.begin_op("aten::_coalesce", {sparse});
  if (graph.pytorch().on_gpu()) {
    coalesce_on_gpu(graph, sparse, made);
  } else {
    coalesce_on_cpu(graph, sparse, made, distinct);
  }
  graph.end_op({made});
  return graph.end_with(made);
}

TensorRef sparse_mask(GraphBuilder& graph, TensorRef dense, TensorRef mask) {
  graph.begin_op("aten::sparse_mask", {dense, mask});
  return graph.end_with(graph.pytorch().before(2, 0) ? sparse_mask_1_13(graph, dense, mask)
                                                     : sparse_mask_2(graph, dense, mask));
}

}  // namespace perfmodel
