#include "detection.hpp"

#include "memory.hpp"

namespace perfmodel {
namespace {

// Words of the overlap matrix: one bit per pair of boxes.
std::int64_t mask_words(std::int64_t boxes) { return (boxes + 63) / 64; }

}  // namespace

TensorRef non_maximum_suppression(GraphBuilder& graph, TensorRef boxes, TensorRef scores,
                                  double overlap, std::int64_t kept) {
  const std::int64_t count = graph.shape(boxes)[0], words = mask_words(count);
  const TensorRef out = graph.new_tensor(DType::kInt64, {kept});
  graph.begin_op("torchvision::nms", {boxes, scores, overlap});
  const TensorRef order = graph.new_tensor(DType::kInt64, {count});
  graph.leaf_op("aten::sort.stable", {scores, true, 0, true}, {like(graph, scores), order});
  graph.leaf_op("aten::index_select", {boxes, 0, order}, {like(graph, boxes)});
  const TensorRef mask = empty(graph, DType::kInt64, {count * words});
  const TensorRef on_host = graph.new_tensor(DType::kInt64, graph.cpu(), {count * words});
  to(graph, mask, on_host, {.tensor = {.pinned = true}});
  const TensorRef rows = graph.new_tensor(DType::kInt64, {kept});
  graph.leaf_op("aten::index.Tensor", {order, std::vector<TensorRef>{rows}}, {out});
  return graph.end_with(out);
}

}  // namespace perfmodel
