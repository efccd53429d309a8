#include <array>

#include "builders/emit/embedding.hpp"
#include "builders/emit/embedding_lookup.hpp"
#include "builders/emit/index.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/sparse.hpp"
#include "builders/emit/views.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

// Rows are gathered one by one on a CPU.
void index_select(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  for (std::int32_t child : rewrite.children(node)) {
    if (rewrite.name(child) != "aten::empty") rewrite.leave_out(child);
  }
  const std::int32_t unsized = rewrite.child(node, "aten::empty");
  if (unsized < 0 || rewrite.graph().pytorch().before(2, 0)) return;
  rewrite.copy(unsized);
  rewrite.leave_out(unsized);
  rewrite.continue_in(node);
  resize_to(rewrite.graph(), rewrite.output_tensor(unsized, 0), rewrite.output_tensor(node, 0));
}

// Whether the first input has a row for each element of the second, as gradients of lookups have.
bool has_row_per_index(Retargeter& rewrite, std::int32_t node) {
  const Tensor* gradient = rewrite.input_entry(node, 0);
  const Tensor* indices = rewrite.input_entry(node, 1);
  if (!gradient || !indices || gradient->rank == 0) return false;
  const std::int64_t cols = rewrite.graph().shape(rewrite.input_tensor(node, 0)).back();
  return cols > 0 && gradient->numel % cols == 0 && gradient->numel / cols == indices->numel;
}

// embedding_dense_backward(gradient, indices, rows, padding, scale by frequency)
void embedding_gradient(Retargeter& rewrite, std::int32_t node) {
  if (rewrite.integer(node, 4) != 0 || !has_row_per_index(rewrite, node)) return rewrite.copy(node);
  rewrite.leave_out(node);
  rewrite.continue_beside(node);
  GraphBuilder& graph = rewrite.graph();
  const TensorRef gradient = rewrite.input_tensor(node, 0);
  const Retargeter::Start start = rewrite.start();
  embedding_dense_backward(graph, gradient, rewrite.input_tensor(node, 1),
                           {rewrite.integer(node, 2), graph.shape(gradient).back()},
                           rewrite.integer(node, 3));
  rewrite.adopt_outputs(start, node);
}

// A CPU needs the bag of each lookup in the backward pass alone, a GPU finds it on the way.
void embedding_bag(Retargeter& rewrite, std::int32_t node) {
  const bool outer = rewrite.name(node) == "aten::embedding_bag";
  const std::int32_t inner = outer ? rewrite.child(node, "aten::_embedding_bag") : node;
  if (inner < 0) return rewrite.copy(node);
  rewrite.leave_out(inner);
  rewrite.leave_out_children(inner);
  GraphBuilder& graph = rewrite.graph();
  if (outer) {
    rewrite.copy(node);
  }
  rewrite.copy(inner);
  const TensorRef indices = rewrite.input_tensor(inner, 1);
  const TensorRef offsets = rewrite.input_tensor(inner, 2);
  const bool maximum = rewrite.integer(inner, 4) == 2;
  const TensorRef out = rewrite.output_tensor(inner, 0);
  const DType dtype = graph.dtype(indices);
  Retargeter::Bag bag;
  bag.bag_size = empty(graph, dtype, graph.shape(offsets));
  bag.offset_to_bag = empty(graph, dtype, graph.shape(indices));
  allocate(graph, out);
  bag.maximum_indices = empty(graph, dtype, maximum ? graph.shape(out) : Shape{0});
  const std::vector<Value> outputs = {out, bag.offset_to_bag, bag.bag_size, bag.maximum_indices};
  graph.end_op(outputs);
  if (outer) graph.end_op(outputs);
  rewrite.bags[rewrite.source().node(inner).seq_id] = bag;
}

// Whether a matrix of gradients, a list of indices and one of the bags' starts are given.
bool has_bags(Retargeter& rewrite, std::int32_t node) {
  constexpr std::array<std::int64_t, 3> kRanks = {2, 1, 1};
  for (std::size_t i = 0; i < kRanks.size(); ++i) {
    const Tensor* given = rewrite.input_entry(node, i);
    if (!given || given->rank != kRanks[i]) return false;
  }
  return rewrite.graph().shape(rewrite.input_tensor(node, 0)).back() > 0 &&
         rewrite.input_entry(node, 2)->numel > 0;
}

// _embedding_bag_backward(gradient, indices, offsets, offset2bag, bag_size, maximum_indices, rows,
// scale by frequency, mode, sparse, per_sample_weights, padding)
void embedding_bag_gradient(Retargeter& rewrite, std::int32_t node) {
  constexpr std::size_t kRows = 6, kScale = 7, kMode = 8, kSparse = 9, kWeights = 10, kPadding = 11;
  const std::int32_t function = rewrite.source().node(node).parent;
  const auto found = rewrite.bags.find(function < 0 ? -1 : rewrite.source().node(function).seq_id);
  if (found == rewrite.bags.end() || !has_bags(rewrite, node)) return rewrite.copy(node);
  rewrite.leave_out(node);
  rewrite.continue_beside(node);
  GraphBuilder& graph = rewrite.graph();
  Bag bag{.rows = rewrite.integer(node, kRows),
          .indices = rewrite.input_tensor(node, 1),
          .offsets = rewrite.input_tensor(node, 2),
          .offset_to_bag = found->second.offset_to_bag,
          .bag_size = found->second.bag_size,
          .maximum_indices = found->second.maximum_indices,
          .sparse = rewrite.integer(node, kSparse) != 0};
  if (!bag.sparse) {
    bag.scale_by_frequency = rewrite.integer(node, kScale) != 0;
    bag.mode = rewrite.integer(node, kMode);
    bag.per_sample_weights = rewrite.input_tensor(node, kWeights);
    bag.padding_row = rewrite.integer(node, kPadding);
  }
  const TensorRef gradient = rewrite.input_tensor(node, 0);
  const Retargeter::Start start = rewrite.start();
  embedding_bag_backward(graph, bag, gradient);
  rewrite.adopt_outputs(start, node);
}

// weight += alpha * gradient: `add.out` with a sparse second tensor looks at its entries by ops.
void add_sparse(Retargeter& rewrite, std::int32_t node) {
  const Tensor* other = rewrite.input_entry(node, 1);
  const bool sparse_to_dense = rewrite.given(node, 0) && rewrite.given(node, 3) && other &&
                               other->storage_id == 0 && other->dtype != DType::kUnknown;
  const std::int32_t count = rewrite.child(node, "aten::_nnz");
  const std::int32_t of_indices = rewrite.child(node, "aten::_indices");
  const std::int32_t of_values = rewrite.child(node, "aten::_values");
  rewrite.copy(node);
  if (!sparse_to_dense || count < 0 || of_indices < 0 || of_values < 0) return;
  rewrite.leave_out_children(node);
  GraphBuilder& graph = rewrite.graph();
  const TensorRef weight = rewrite.input_tensor(node, 0), gradient = rewrite.input_tensor(node, 1);
  const TensorRef values = rewrite.output_tensor(of_values, 0);
  const TensorRef indices = rewrite.output_tensor(of_indices, 0);
  const Shape shape = graph.shape(weight);
  const std::int64_t entries = graph.shape(values)[0];
  graph.leaf_op("aten::_nnz", {gradient}, {entries});
  graph.leaf_op("aten::_values", {gradient}, {values});
  to_same_dtype(graph, values);
  graph.leaf_op("aten::_indices", {gradient}, {indices});
  graph.leaf_op("aten::is_coalesced", {gradient}, {false});
  const TensorRef rows = squeeze(graph, indices, 0);
  const TensorRef target = view(graph, weight, shape);
  const TensorRef rows_to_add = reshape(graph, values, {entries, graph.numel(weight) / shape[0]});
  index_add_in_place(graph, target, rows, rows_to_add, rewrite.input(node, 2));
}

}  // namespace

std::span<const NamedRetargetRule> embedding_retarget_rules() {
  static constexpr NamedRetargetRule kRules[] = {
      {"index_select", index_select},   {"embedding_gradient", embedding_gradient},
      {"embedding_bag", embedding_bag}, {"embedding_bag_gradient", embedding_bag_gradient},
      {"add_sparse", add_sparse},
  };
  return kRules;
}

}  // namespace perfmodel
