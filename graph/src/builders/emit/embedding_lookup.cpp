#include "embedding_lookup.hpp"

#include <algorithm>
#include <utility>

#include "factory.hpp"
#include "memory.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

// Up to this many lookups one kernel adds into the rows; more of them are sorted first.
constexpr std::int64_t kMostUnsortedLookups = 3072;
// Rows that one block of the sorted kernel adds up.
constexpr std::int64_t kRowsPerThread = 10;
constexpr std::int64_t kWarp = 32;

}  // namespace

TensorRef index_select(GraphBuilder& graph, TensorRef x, TensorRef indices, std::int64_t sequence) {
  Shape shape = graph.shape(x);
  shape[0] = graph.numel(indices);
  graph.begin_op("aten::index_select", {x, 0, indices}, sequence);
  const TensorRef unsized = empty(graph, graph.dtype(x), {0});
  const TensorRef rows = contiguous_view(graph, unsized, shape);
  if (!graph.pytorch().on_gpu()) {
    if (shape.size() > 1) {  // the width of a row is read off one of each
      select(graph, x, 0, 0);
      select(graph, rows, 0, 0);
    }
  } else if (!graph.pytorch().before(2, 0)) {
    resize_to(graph, unsized, rows);
  }
  return graph.end_with(rows);
}

TensorRef sorted_lookup_gradient(GraphBuilder& graph, TensorRef indices, TensorRef gradient,
                                 const Shape& weight_shape) {
  const std::int64_t lookups = graph.numel(indices);
  const std::int64_t segments = std::min(lookups, weight_shape[0]);
  const std::int64_t most_partial = lookups / kRowsPerThread + segments;
  const Value device = graph.device_value();
  const auto like_indices = [&] { empty_like_contiguous(graph, indices); };
  const auto integers = [&](Shape shape) { empty(graph, DType::kInt64, std::move(shape)); };
  like_indices();  // sorted
  like_indices();  // their original places
  graph.begin_op("aten::arange", {lookups, scalar_type_code(DType::kInt64), 0, device, kNone});
  graph.end_op({fill_arange(graph, empty(graph, DType::kInt64, {0}), lookups)});
  const TensorRef made = zeros(graph, graph.dtype(gradient), weight_shape);
  integers({lookups});       // starts of segments
  integers({});              // how many there are
  integers({segments});      // parts of each
  integers({segments});      // starts of these
  integers({});              // how many parts
  integers({most_partial});  // their starts
  empty(graph, graph.dtype(gradient),
        {most_partial, (weight_shape[1] + kWarp - 1) / kWarp * kWarp});  // sums of parts
  return made;
}

namespace {

TensorRef dense_backward(GraphBuilder& graph, TensorRef weight, TensorRef indices,
                         TensorRef gradient, std::int64_t padding_row) {
  const Shape shape = graph.shape(weight);
  graph.begin_op("aten::embedding_backward",
                 {gradient, indices, shape[0], padding_row, false, false});
  return graph.end_with(embedding_dense_backward(graph, gradient, indices, shape, padding_row));
}

}  // namespace

TensorRef embedding_dense_backward(GraphBuilder& graph, TensorRef gradient, TensorRef indices,
                                   const Shape& shape, std::int64_t padding_row) {
  const std::int64_t lookups = graph.numel(indices);
  const DType dtype = graph.dtype(gradient);
  graph.begin_op("aten::embedding_dense_backward",
                 {gradient, indices, shape[0], padding_row, false});
  TensorRef made;
  if (graph.pytorch().on_gpu()) {
    const TensorRef rows = view(graph, contiguous(graph, gradient), {lookups, shape[1]});
    made = lookups <= kMostUnsortedLookups ? zeros(graph, dtype, shape)
                                           : sorted_lookup_gradient(graph, indices, rows, shape);
  } else {
    const TensorRef dense = contiguous(graph, gradient);
    made = zeros(graph, dtype, shape);
    view(graph, dense, {lookups, shape[1]});
  }
  return graph.end_with(made);
}

TensorRef embedding_lookup(AutogradTape& tape, TensorRef weight, TensorRef indices,
                           std::int64_t padding_row) {
  GraphBuilder& graph = tape.graph();
  Shape shape = graph.shape(indices);
  const bool flat = shape.size() == 1;
  shape.push_back(graph.shape(weight)[1]);
  graph.begin_op("aten::embedding", {weight, indices, padding_row, false, false}, tape.sequence());
  TensorRef out = index_select(graph, weight, flat ? indices : reshape(graph, indices, {-1}));
  if (!flat) out = view(graph, out, shape);
  graph.end_op({out});
  return tape.record_unary("EmbeddingBackward0", weight, out,
                           [&graph, weight, indices, padding_row](TensorRef gradient) {
                             return dense_backward(graph, weight, indices, gradient, padding_row);
                           });
}

}  // namespace perfmodel
