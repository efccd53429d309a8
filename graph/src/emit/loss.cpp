#include "loss.hpp"

#include "memory.hpp"
#include "reduction.hpp"
#include "views.hpp"

namespace perfmodel {
TensorRef binary_cross_entropy(AutogradTape& tape, TensorRef prediction, TensorRef target) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::binary_cross_entropy", {prediction, target, kNone, 1}, tape.sequence());
  const TensorRef each = empty_like(graph, prediction);
  for (TensorRef x : {each, prediction, target}) squeeze(graph, x);
  const TensorRef mean = graph.new_tensor(graph.dtype(prediction), {});
  graph.begin_op("aten::mean", {each, kNone});
  graph.leaf_op("aten::mean.dim", {each, Value::List{}, false, kNone}, {mean});
  graph.end_op({mean});
  const TensorRef loss = contiguous_view(graph, each, {});
  graph.begin_op("aten::resize_as_", {each, mean, kNone});
  graph.leaf_op("aten::resize_", {each, Shape{}, kNone}, {loss});
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
  graph.begin_op("aten::expand_as", {gradient, prediction});
  graph.end_op({expand(graph, gradient, graph.shape(prediction))});
  graph.begin_op("aten::div_.Scalar", {made, graph.numel(prediction)});
  graph.leaf_op("aten::div_.Tensor", {made, wrapped_number(graph)}, {made});
  graph.end_op({made});
  graph.end_op({made});
  return made;
}

namespace {

constexpr std::int64_t kMean = 1, kIgnoredClass = -100;

TensorRef log_softmax(AutogradTape& tape, TensorRef x, int dim) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = like(graph, x);
  const int dtype = scalar_type_code(graph.dtype(x));
  const std::int64_t sequence = tape.sequence();
  graph.begin_op("aten::log_softmax.int", {x, dim, dtype}, sequence);
  graph.leaf_op("aten::to.dtype_layout",
                {x, dtype, 0, graph.device_value(), kNone, false, false, kNone}, {x}, sequence);
  graph.leaf_op("aten::_log_softmax", {x, dim, false}, {out}, sequence);
  graph.end_op({out});
  tape.record(
      "LogSoftmaxBackward0", {x}, out,
      [&graph, out, dim, dtype](TensorRef gradient) -> std::vector<TensorRef> {
        const TensorRef made = like(graph, out);
        graph.leaf_op("aten::_log_softmax_backward_data", {gradient, out, dim, dtype}, {made});
        return {made};
      });
  return out;
}

TensorRef nll_loss(AutogradTape& tape, TensorRef log_probability, TensorRef target) {
  GraphBuilder& graph = tape.graph();
  const TensorRef loss = graph.new_tensor(graph.dtype(log_probability), {});
  const TensorRef weight = like(graph, loss), undefined = graph.undefined();
  const std::int64_t sequence = tape.sequence();
  const std::vector<Value> arguments = {log_probability, target, kNone, kMean, kIgnoredClass};
  graph.begin_op("aten::nll_loss_nd", arguments, sequence);
  graph.begin_op("aten::nll_loss", arguments, sequence);
  graph.begin_op("aten::nll_loss_forward",
                 {log_probability, target, undefined, kMean, kIgnoredClass}, sequence);
  if (graph.pytorch().on_gpu()) {
    graph.leaf_op("aten::resize_", {weight, Shape{}, kNone}, {weight});
  }
  graph.end_op({loss, weight});
  graph.end_op({loss});
  graph.end_op({loss});
  tape.record("NllLossBackward0", {log_probability}, loss,
              [&graph, log_probability, target, weight,
               undefined](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef made = like(graph, log_probability);
                graph.begin_op(
                    "aten::nll_loss_backward",
                    {gradient, log_probability, target, undefined, kMean, kIgnoredClass, weight});
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
  graph.begin_op("aten::cross_entropy_loss", {scores, target, kNone, kMean, kIgnoredClass, 0.0},
                 tape.sequence());
  TensorRef loss = log_softmax(tape, scores, 1);
  if (is_floating_point(graph.dtype(target))) {
    loss = negate(tape, sum(tape, multiply(tape, loss, target)));
    loss = divide(tape, loss, graph.shape(scores)[0]);
  } else {
    loss = nll_loss(tape, loss, target);
  }
  graph.end_op({loss});
  return loss;
}

}  // namespace perfmodel
