#include "loss.hpp"

#include "memory.hpp"
#include "pointwise.hpp"
#include "reduction.hpp"
#include "softmax.hpp"
#include "update.hpp"
#include "views.hpp"

namespace perfmodel {
TensorRef binary_cross_entropy(GraphBuilder& graph, TensorRef prediction, TensorRef target,
                               std::int64_t sequence) {
  graph.begin_op("aten::binary_cross_entropy", {prediction, target, kNone, 1}, sequence);
  const TensorRef each = empty_like(graph, prediction);
  for (TensorRef x : {each, prediction, target}) squeeze(graph, x);
  const TensorRef mean = perfmodel::mean(graph, each);
  graph.begin_op("aten::resize_as_", {each, mean, kNone});
  const TensorRef loss = resized(graph, each, {});
  graph.end_op({loss});
  copy(graph, loss, mean);
  return graph.end_with(loss);
}

TensorRef binary_cross_entropy(AutogradTape& tape, TensorRef prediction, TensorRef target) {
  GraphBuilder& graph = tape.graph();
  const TensorRef loss = binary_cross_entropy(graph, prediction, target, tape.sequence());
  return tape.record_unary("BinaryCrossEntropyBackward0", prediction, loss,
                           [&graph, prediction, target](TensorRef gradient) {
                             return binary_cross_entropy_backward(graph, gradient, prediction,
                                                                  target);
                           });
}

TensorRef binary_cross_entropy_backward(GraphBuilder& graph, TensorRef gradient,
                                        TensorRef prediction, TensorRef target) {
  graph.begin_op("aten::binary_cross_entropy_backward",
                 {gradient, prediction, target, graph.undefined(), 1});
  const TensorRef made = empty_like(graph, prediction);
  if (graph.pytorch().on_gpu()) {
    graph.begin_op("aten::expand_as", {gradient, prediction});
    graph.end_op({expand(graph, gradient, graph.shape(prediction))});
  } else {
    for (TensorRef x : {made, gradient, prediction, target}) squeeze(graph, x);
  }
  divide_in_place(graph, made, graph.numel(prediction));
  return graph.end_with(made);
}

namespace {

constexpr std::int64_t kIgnoredClass = -100;

TensorRef nll_loss(AutogradTape& tape, TensorRef log_probability, TensorRef target) {
  GraphBuilder& graph = tape.graph();
  const TensorRef loss = graph.new_tensor(graph.dtype(log_probability), {});
  const TensorRef weight = like(graph, loss), undefined = graph.undefined();
  const std::int64_t sequence = tape.sequence();
  const std::vector<Value> arguments = {log_probability, target, kNone, kReduceMean, kIgnoredClass};
  graph.begin_op("aten::nll_loss_nd", arguments, sequence);
  graph.begin_op("aten::nll_loss", arguments, sequence);
  graph.begin_op("aten::nll_loss_forward",
                 {log_probability, target, undefined, kReduceMean, kIgnoredClass}, sequence);
  if (graph.pytorch().on_gpu()) resize_to(graph, weight, weight);
  graph.end_op({loss, weight});
  graph.end_op({loss});
  graph.end_op({loss});
  return tape.record_unary(
      "NllLossBackward0", log_probability, loss,
      [&graph, log_probability, target, weight, undefined](TensorRef gradient) {
        const TensorRef made = like(graph, log_probability);
        graph.begin_op("aten::nll_loss_backward", {gradient, log_probability, target, undefined,
                                                   kReduceMean, kIgnoredClass, weight});
        zero(graph, made);
        return graph.end_with(made);
      });
}

// -sum over classes, mean over the samples that are not ignored.
TensorRef loss_of_all_classes(AutogradTape& tape, TensorRef log_probability, TensorRef target) {
  GraphBuilder& graph = tape.graph();
  const TensorRef each = neg(tape, sum(tape, log_probability, {1}, false));
  const TensorRef ignored = graph.new_tensor(DType::kBool, graph.shape(target));
  graph.leaf_op("aten::eq.Scalar", {target, kIgnoredClass}, {ignored}, tape.sequence());
  emit(tape, "aten::masked_fill_.Scalar", {each, ignored, 0.0});
  const TensorRef all = sum(tape, each);
  const TensorRef counted = like(graph, ignored);
  graph.leaf_op("aten::bitwise_not", {ignored}, {counted}, tape.sequence());
  const TensorRef samples = graph.new_tensor(DType::kInt64, {});
  graph.leaf_op("aten::sum", {counted, kNone}, {samples}, tape.sequence());
  return div(tape, all, samples);
}

}  // namespace

TensorRef cross_entropy(AutogradTape& tape, TensorRef scores, TensorRef target,
                        double label_smoothing) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::cross_entropy_loss",
                 {scores, target, kNone, kReduceMean, kIgnoredClass, label_smoothing},
                 tape.sequence());
  TensorRef loss = log_softmax(tape, scores, 1, true);
  if (is_floating_point(graph.dtype(target))) {
    loss = neg(tape, sum(tape, mul(tape, loss, target)));
    loss = divide(tape, loss, graph.shape(scores)[0]);
  } else if (label_smoothing > 0) {
    const TensorRef of_class = nll_loss(tape, loss, target);
    const TensorRef of_all = loss_of_all_classes(tape, loss, target);
    const double share = label_smoothing / static_cast<double>(graph.shape(scores)[1]);
    const TensorRef all = mul(tape, of_all, share);
    loss = add(tape, mul(tape, of_class, 1 - label_smoothing), all);
  } else {
    loss = nll_loss(tape, loss, target);
  }
  return graph.end_with(loss);
}

namespace {

// max(-x, 0) + (1 - y) x + log(exp(-max(-x, 0)) + exp(-x - max(-x, 0))), as PyTorch 1 has it.
TensorRef bce_with_logits_terms(GraphBuilder& graph, TensorRef x, TensorRef target) {
  const auto in_place = [&](const char* op, std::vector<Value> inputs, TensorRef out) {
    graph.leaf_op(op, std::move(inputs), {out});
  };
  const TensorRef most = neg(graph, x);
  in_place("aten::clamp_min_", {most, 0}, most);
  const TensorRef ones = empty_like_in_order(graph, target);
  fill(graph, ones, 1);
  sub_(graph, ones, target);
  mul_(graph, ones, x);
  add_(graph, ones, most);
  const TensorRef first = neg(graph, most);
  in_place("aten::exp_", {first}, first);
  const TensorRef negated = neg(graph, x);
  const TensorRef second = sub(graph, negated, most);
  in_place("aten::exp_", {second}, second);
  add_(graph, first, second);
  in_place("aten::log_", {first}, first);
  add_(graph, ones, first);
  return ones;
}

// (1 - y) x - log(sigmoid(x)), as PyTorch 2 has it.
TensorRef bce_with_log_sigmoid(GraphBuilder& graph, TensorRef x, TensorRef target) {
  const TensorRef log_sigmoid = like(graph, x);
  graph.begin_op("aten::log_sigmoid", {x});
  // A CPU keeps the second output for the backward pass.
  const bool on_gpu = graph.pytorch().on_gpu();
  const TensorRef kept = graph.new_tensor(graph.dtype(x), on_gpu ? Shape{0} : graph.shape(x));
  graph.leaf_op("aten::log_sigmoid_forward", {x}, {log_sigmoid, kept});
  graph.end_op({log_sigmoid});
  const TensorRef each = subtract_from(graph, 1.0, target);
  mul_(graph, each, x);
  sub_(graph, each, log_sigmoid);
  return each;
}

TensorRef bce_with_logits_backward(GraphBuilder& graph, TensorRef gradient, TensorRef logits,
                                   TensorRef target) {
  TensorRef made = sigmoid(graph, logits);
  if (graph.pytorch().before(2, 1)) {
    sub_(graph, made, target);
  } else {
    made = sub(graph, made, target);
  }
  mul_(graph, made, gradient);
  divide_in_place(graph, made, graph.numel(logits));
  return made;
}

}  // namespace

TensorRef binary_cross_entropy_with_logits(AutogradTape& tape, TensorRef logits, TensorRef target) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::binary_cross_entropy_with_logits", {logits, target, kNone, kNone, 1},
                 tape.sequence());
  const TensorRef each = graph.pytorch().before(2, 1) ? bce_with_logits_terms(graph, logits, target)
                                                      : bce_with_log_sigmoid(graph, logits, target);
  const TensorRef loss = mean(graph, each);
  graph.end_op({loss});
  return tape.record_unary("BinaryCrossEntropyWithLogitsBackward0", logits, loss,
                           [&graph, logits, target](TensorRef gradient) {
                             return bce_with_logits_backward(graph, gradient, logits, target);
                           });
}

}  // namespace perfmodel
