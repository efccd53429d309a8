#include "detection.hpp"

#include "index.hpp"
#include "loss.hpp"
#include "memory.hpp"
#include "pointwise.hpp"
#include "reduction.hpp"
#include "update.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

Shape picked_shape(const GraphBuilder& graph, TensorRef x, TensorRef rows) {
  Shape shape = graph.shape(x);
  shape[0] = graph.numel(rows);
  return shape;
}

// Words of the overlap matrix: one bit per pair of boxes.
std::int64_t mask_words(std::int64_t boxes) { return (boxes + 63) / 64; }

}  // namespace

TensorRef pick_rows(GraphBuilder& graph, TensorRef x, TensorRef rows, std::int64_t sequence) {
  const Shape shape = picked_shape(graph, x, rows);
  const TensorRef out = graph.new_tensor(graph.dtype(x), shape);
  graph.begin_op("aten::index.Tensor", {x, std::vector<TensorRef>{rows}}, sequence);
  Shape column(shape.size(), 1);
  column[0] = shape[0];
  reshape(graph, rows, column);
  return graph.end_with(out);
}

TensorRef pick_rows(AutogradTape& tape, TensorRef x, TensorRef rows) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = pick_rows(graph, x, rows, tape.sequence());
  return tape.record_unary("IndexBackward0", x, out, [&graph, x, rows](TensorRef gradient) {
    const TensorRef made = new_zeros(graph, gradient, graph.shape(x));
    index_put_accumulate(graph, made, {rows}, gradient);
    return made;
  });
}

// (1 - target) * score - log(sigmoid(score)), as PyTorch 2 has it.
TensorRef binary_cross_entropy_with_scores(AutogradTape& tape, TensorRef scores, TensorRef target) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::binary_cross_entropy_with_logits",
                 {scores, target, kNone, kNone, kReduceMean}, tape.sequence());
  const TensorRef each = empty_like(graph, target);
  fill(graph, each, 1);
  sub_(graph, each, target);
  mul_(graph, each, scores);
  const TensorRef log_probability = like(graph, scores);
  const TensorRef buffer = graph.new_tensor(graph.dtype(scores), {0});
  graph.begin_op("aten::log_sigmoid", {scores});
  graph.leaf_op("aten::log_sigmoid_forward", {scores}, {log_probability, buffer});
  graph.end_op({log_probability});
  sub_(graph, each, log_probability);
  const TensorRef loss = mean(graph, each);
  graph.end_op({loss});
  return tape.record_unary("BinaryCrossEntropyWithLogitsBackward0", scores, loss,
                           [&graph, scores, target](TensorRef gradient) {
                             const TensorRef probability = sigmoid(graph, scores);
                             const TensorRef made =
                                 mul(graph, sub(graph, probability, target), gradient);
                             divide_in_place(graph, made, graph.numel(scores));
                             return made;
                           });
}

TensorRef smooth_l1_sum(AutogradTape& tape, TensorRef prediction, TensorRef target, double beta) {
  GraphBuilder& graph = tape.graph();
  const std::vector<TensorRef> both = {prediction, target};
  graph.leaf_op("aten::broadcast_tensors", {both}, {both}, tape.sequence());
  const TensorRef loss = graph.new_tensor(graph.dtype(prediction), {});
  graph.begin_op("aten::smooth_l1_loss", {prediction, target, kReduceSum, beta}, tape.sequence());
  const TensorRef each = like(graph, prediction);
  allocate(graph, each, {.layout = false, .order = true});
  graph.begin_op("aten::sum.IntList_out", {each, Shape{}, false, kNone, loss});
  as_strided(graph, loss, Shape(graph.shape(each).size(), 1), Shape(graph.shape(each).size(), 0));
  graph.end_op({loss});
  graph.end_op({loss});
  return tape.record_unary(
      "SmoothL1LossBackward0", prediction, loss,
      [&graph, prediction, target, beta](TensorRef gradient) {
        graph.begin_op("aten::smooth_l1_loss_backward",
                       {gradient, prediction, target, kReduceSum, beta});
        const TensorRef made = zeros_like(graph, prediction, graph.dtype(prediction));
        graph.leaf_op("aten::smooth_l1_loss_backward.grad_input",
                      {gradient, prediction, target, kReduceSum, beta, made}, {made});
        return graph.end_with(made);
      });
}

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

TensorRef roi_align(AutogradTape& tape, TensorRef features, TensorRef regions,
                    const RoiAlign& align) {
  GraphBuilder& graph = tape.graph();
  const Shape& from = graph.shape(features);
  const Shape shape = {graph.shape(regions)[0], from[1], align.size, align.size};
  const std::vector<Value> arguments = {features,   regions,       align.scale, align.size,
                                        align.size, align.samples, false};
  // The outer call belongs to autograd, which calls the kernel's.
  graph.begin_op("torchvision::roi_align", arguments, tape.sequence());
  graph.begin_op("torchvision::roi_align", arguments);
  const TensorRef out = zeros(graph, graph.dtype(features), shape);
  graph.end_op({out});
  graph.end_op({out});
  return tape.record_unary(
      "torch::autograd::CppNode<vision::ops::(anonymous namespace)::ROIAlignFunction>", features,
      out, [&graph, features, regions, align](TensorRef gradient) {
        const Shape& to = graph.shape(features);
        const std::vector<Value> inputs = {gradient,   regions,       align.scale, align.size,
                                           align.size, to[0],         to[1],       to[2],
                                           to[3],      align.samples, false};
        graph.begin_op("torchvision::_roi_align_backward", inputs);
        graph.begin_op("torchvision::_roi_align_backward", inputs);
        const TensorRef made = zeros(graph, graph.dtype(features), to);
        graph.end_op({made});
        return graph.end_with(made);
      });
}

}  // namespace perfmodel
