#include "jagged.hpp"

#include "memory.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

// Zero, then running sums.
TensorRef empty_offsets(GraphBuilder& graph, TensorRef lengths, std::int64_t sequence) {
  const TensorRef offsets = empty(graph, graph.dtype(lengths), {graph.numel(lengths) + 1});
  zero(graph, select(graph, offsets, 0, 0, sequence), sequence);
  return offsets;
}

}  // namespace

void prefix_sum_scratch(GraphBuilder& graph) { empty(graph, DType::kUInt8, {767}); }

Jagged permute_jagged(GraphBuilder& graph, TensorRef order, const Jagged& features,
                      std::int64_t sequence) {
  const std::int64_t total = graph.numel(features.values);
  graph.begin_op("fbgemm::permute_2D_sparse_data",
                 {order, features.lengths, features.values, kNone, total});
  Jagged permuted;
  permuted.lengths = empty(graph, graph.dtype(features.lengths), graph.shape(features.lengths));
  empty_like(graph, features.lengths, sequence);  // offsets of the input
  prefix_sum_scratch(graph);
  flatten(graph, permuted.lengths, sequence);
  empty_offsets(graph, permuted.lengths, sequence);
  prefix_sum_scratch(graph);
  permuted.values = empty(graph, graph.dtype(features.values), {total});
  graph.end_op({permuted.lengths, permuted.values, graph.undefined()});
  return permuted;
}

TensorRef complete_cumsum(GraphBuilder& graph, TensorRef lengths, std::int64_t sequence) {
  graph.begin_op("fbgemm::asynchronous_complete_cumsum", {lengths});
  const TensorRef offsets = empty_offsets(graph, lengths, sequence);
  prefix_sum_scratch(graph);
  graph.end_op({offsets});
  return offsets;
}

}  // namespace perfmodel
