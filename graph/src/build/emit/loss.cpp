#include "loss.hpp"

#include "memory.hpp"
#include "reduction.hpp"
#include "softmax.hpp"
#include "views.hpp"

namespace perfmodel {
TensorRef binary_cross_entropy(AutogradTape& tape, TensorRef prediction, TensorRef target) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::binary_cross_entropy", {prediction, target, kNone, 1}, tape.sequence());
  const TensorRef each = empty_like(graph, prediction);
  for (TensorRef x : {each, prediction, target}) squeeze(graph, x);
  const TensorRef mean = perfmodel::mean(graph, each);
  graph.begin_op("aten::resize_as_", {each, mean, kNone});
  const TensorRef loss = resize(graph, each, {});
  graph.end_op({loss});
  copy(graph, loss, mean);
  graph.end_op({loss});

  tape.record("BinaryCrossEntropyBackward0", {prediction}, loss,
              [&graph, prediction, target](TensorRef gradient) -> std::vector<TensorRef> {
                return {binary_cross_entropy_backward(graph, gradient, prediction, target)};
              });
  return loss;
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
  graph.end_op({made});
  return made;
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
<<<<<<< HEAD
                 {log_probability, target, undefined, kReduceMean, kIgnoredClass}, sequence);
  if (graph.pytorch().on_gpu()) {
    graph.leaf_op("aten::resize_", {weight, Shape{}, kNone}, {weight});
  }
=======
                 {log_probability, target, undefined, kMean, kIgnoredClass}, sequence);
  if (graph.pytorch().on_gpu()) resize_to(graph, weight, weight);
>>>>>>> 0de2052f74586bddd07dd93eaac4ee8d26da0366
  graph.end_op({loss, weight});
  graph.end_op({loss});
  graph.end_op({loss});
  tape.record("NllLossBackward0", {log_probability}, loss,
              [&graph, log_probability, target, weight,
               undefined](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef made = like(graph, log_probability);
                graph.begin_op("aten::nll_loss_backward",
                               {gradient, log_probability, target, undefined, kReduceMean,
                                kIgnoredClass, weight});
                zero(graph, made);
                graph.end_op({made});
                return {made};
              });
  return loss;
}

TensorRef multiply(AutogradTape& tape, TensorRef x, TensorRef constant) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = like(graph, x);
  graph.leaf_op("aten::mul.Tensor", {x, constant}, {out}, tape.sequence());
  tape.record("MulBackward0", {x}, out,
              [&graph, constant](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef made = like(graph, constant);
                graph.leaf_op("aten::mul.Tensor", {gradient, constant}, {made});
                return {made};
              });
  return out;
}

TensorRef negate(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = like(graph, x);
  graph.leaf_op("aten::neg", {x}, {out}, tape.sequence());
  tape.record("NegBackward0", {x}, out, [&graph](TensorRef gradient) -> std::vector<TensorRef> {
    const TensorRef made = like(graph, gradient);
    graph.leaf_op("aten::neg", {gradient}, {made});
    return {made};
  });
  return out;
}

}  // namespace

TensorRef cross_entropy(AutogradTape& tape, TensorRef scores, TensorRef target) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::cross_entropy_loss",
                 {scores, target, kNone, kReduceMean, kIgnoredClass, 0.0}, tape.sequence());
  TensorRef loss = log_softmax(tape, scores, 1, true);
  if (is_floating_point(graph.dtype(target))) {
    loss = negate(tape, sum(tape, multiply(tape, loss, target)));
    loss = divide(tape, loss, graph.shape(scores)[0]);
  } else {
    loss = nll_loss(tape, loss, target);
  }
  graph.end_op({loss});
  return loss;
}

namespace {

// max(-x, 0) + (1 - y) x + log(exp(-max(-x, 0)) + exp(-x - max(-x, 0))), as PyTorch 1 has it.
TensorRef bce_with_logits_terms(GraphBuilder& graph, TensorRef x, TensorRef target) {
  const auto fresh = [&](const char* op, std::vector<Value> inputs) {
    const TensorRef made = like(graph, x);
    graph.leaf_op(op, std::move(inputs), {made});
    return made;
  };
  const auto in_place = [&](const char* op, std::vector<Value> inputs, TensorRef out) {
    graph.leaf_op(op, std::move(inputs), {out});
  };
  const TensorRef most = fresh("aten::neg", {x});
  in_place("aten::clamp_min_", {most, 0}, most);
  const TensorRef ones = empty_like_in_order(graph, target);
  fill(graph, ones, 1);
  in_place("aten::sub_.Tensor", {ones, target, 1}, ones);
  in_place("aten::mul_.Tensor", {ones, x}, ones);
  in_place("aten::add_.Tensor", {ones, most, 1}, ones);
  const TensorRef first = fresh("aten::neg", {most});
  in_place("aten::exp_", {first}, first);
  const TensorRef negated = fresh("aten::neg", {x});
  const TensorRef second = fresh("aten::sub.Tensor", {negated, most, 1});
  in_place("aten::exp_", {second}, second);
  in_place("aten::add_.Tensor", {first, second, 1}, first);
  in_place("aten::log_", {first}, first);
  in_place("aten::add_.Tensor", {ones, first, 1}, ones);
  return ones;
}

// (1 - y) x - log(sigmoid(x)), as PyTorch 2 has it.
TensorRef bce_with_log_sigmoid(GraphBuilder& graph, TensorRef x, TensorRef target) {
  const TensorRef log_sigmoid = like(graph, x);
  graph.begin_op("aten::log_sigmoid", {x});
  // The second output is what a CPU keeps for the backward pass.
  const bool on_gpu = graph.pytorch().on_gpu();
  const TensorRef kept = graph.new_tensor(graph.dtype(x), on_gpu ? Shape{0} : graph.shape(x));
  graph.leaf_op("aten::log_sigmoid_forward", {x}, {log_sigmoid, kept});
  graph.end_op({log_sigmoid});
  const TensorRef each = like(graph, target);
  graph.begin_op("aten::rsub.Scalar", {target, 1.0, 1});
  const TensorRef one = wrapped_number(graph, DType::kFloat64);
  graph.begin_op("aten::sub.Tensor", {one, target, 1});
  cast_wrapped_number(graph, one, graph.dtype(target));
  graph.end_op({each});
  graph.end_op({each});
  graph.leaf_op("aten::mul_.Tensor", {each, x}, {each});
  graph.leaf_op("aten::sub_.Tensor", {each, log_sigmoid, 1}, {each});
  return each;
}

TensorRef bce_with_logits_backward(GraphBuilder& graph, TensorRef gradient, TensorRef logits,
                                   TensorRef target) {
  TensorRef made = like(graph, logits);
  graph.leaf_op("aten::sigmoid", {logits}, {made});
  if (graph.pytorch().before(2, 1)) {
    graph.leaf_op("aten::sub_.Tensor", {made, target, 1}, {made});
  } else {
    const TensorRef difference = like(graph, logits);
    graph.leaf_op("aten::sub.Tensor", {made, target, 1}, {difference});
    made = difference;
  }
  graph.leaf_op("aten::mul_.Tensor", {made, gradient}, {made});
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
  tape.record("BinaryCrossEntropyWithLogitsBackward0", {logits}, loss,
              [&graph, logits, target](TensorRef gradient) -> std::vector<TensorRef> {
                return {bce_with_logits_backward(graph, gradient, logits, target)};
              });
  return loss;
}

}  // namespace perfmodel
