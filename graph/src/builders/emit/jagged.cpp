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

constexpr std::int64_t kRowAlignment = 256, kPaddingTiles = 32;

std::int64_t tiles(std::int64_t count, std::int64_t tile) { return (count + tile - 1) / tile; }

// CUB aligns its memory and adds the bytes that may be lost at the start.
void empty_bytes_for_cub(GraphBuilder& graph, std::int64_t needed) {
  const std::int64_t aligned = (needed + kRowAlignment - 1) / kRowAlignment * kRowAlignment;
  empty(graph, DType::kUInt8, {aligned + kRowAlignment - 1});
}

}  // namespace

void prefix_sum_scratch(GraphBuilder& graph, std::int64_t count) {
  constexpr std::int64_t kTile = 1920, kTileStateBytes = 8;
  empty_bytes_for_cub(graph, kTileStateBytes * (kPaddingTiles + tiles(count, kTile)));
}

void run_length_scratch(GraphBuilder& graph, std::int64_t count) {
  constexpr std::int64_t kTile = 672, kTileStateBytes = 16;
  empty_bytes_for_cub(graph, kTileStateBytes * (kPaddingTiles + tiles(count, kTile)));
}

// One block sorts a short vector without scratch. A long one takes copies of keys and values and
// counters of digits; those are as for 13,312 elements, the only ones that were recorded.
void sort_scratch(GraphBuilder& graph, std::int64_t count) {
  constexpr std::int64_t kOneBlock = 4864, kCounterBytes = 9472;
  if (count <= kOneBlock) {
    empty(graph, DType::kUInt8, {1});
  } else {
    empty_bytes_for_cub(graph, count * (8 + 4) + kCounterBytes);
  }
}

Jagged permute_jagged(GraphBuilder& graph, TensorRef order, const Jagged& features,
                      std::int64_t sequence, std::int64_t total) {
  if (total < 0) total = graph.numel(features.values);
  graph.begin_op("fbgemm::permute_2D_sparse_data",
                 {order, features.lengths, features.values, kNone, total});
  Jagged permuted;
  permuted.lengths = empty(graph, graph.dtype(features.lengths),
                           {graph.numel(order), graph.shape(features.lengths)[1]});
  empty_like(graph, features.lengths, sequence);  // offsets of the input
  prefix_sum_scratch(graph, graph.numel(features.lengths));
  flatten(graph, permuted.lengths, sequence);
  empty_offsets(graph, permuted.lengths, sequence);
  prefix_sum_scratch(graph, graph.numel(permuted.lengths));
  permuted.values = empty(graph, graph.dtype(features.values), {total});
  graph.end_op({permuted.lengths, permuted.values, graph.undefined()});
  return permuted;
}

Jagged block_bucketize(GraphBuilder& graph, TensorRef block_rows, std::int64_t buckets,
                       const Jagged& features, std::int64_t sequence) {
  graph.begin_op("fbgemm::block_bucketize_sparse_features",
                 {features.lengths, features.values, false, false, block_rows, buckets, kNone});
  Jagged cut;
  empty_offsets(graph, features.lengths, sequence);
  cut.lengths =
      zeros(graph, graph.dtype(features.lengths), {buckets * graph.numel(features.lengths)});
  empty_offsets(graph, cut.lengths, sequence);
  cut.values = empty_like(graph, features.values, sequence);
  prefix_sum_scratch(graph, graph.numel(features.lengths));
  prefix_sum_scratch(graph, graph.numel(cut.lengths));
  graph.end_op({cut.lengths, cut.values, kNone, kNone, kNone});
  return cut;
}

TensorRef complete_cumsum(GraphBuilder& graph, TensorRef lengths, std::int64_t sequence) {
  graph.begin_op("fbgemm::asynchronous_complete_cumsum", {lengths});
  const TensorRef offsets = empty_offsets(graph, lengths, sequence);
  prefix_sum_scratch(graph, graph.numel(lengths));
  return graph.end_with(offsets);
}

}  // namespace perfmodel
