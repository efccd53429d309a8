#include "dropout.hpp"

#include "memory.hpp"
#include "pointwise.hpp"

namespace perfmodel {
namespace {

TensorRef fused_dropout(AutogradTape& tape, TensorRef x, double probability) {
  GraphBuilder& graph = tape.graph();
  const Dropped dropped = native_dropout(graph, x, probability, tape.sequence());
  return tape.record_unary("NativeDropoutBackward0", x, dropped.out,
                           [&graph, mask = dropped.mask, probability](TensorRef gradient) {
                             return native_dropout_backward(graph, gradient, mask, probability);
                           });
}

// A CPU draws the noise in ops of its own.
TensorRef dropout_by_noise(AutogradTape& tape, TensorRef x, double probability) {
  GraphBuilder& graph = tape.graph();
  const std::int64_t sequence = tape.sequence();
  const double kept = 1.0 - probability;
  const TensorRef noise = empty_like_contiguous(graph, x, sequence);
  graph.leaf_op("aten::bernoulli_.float", {noise, kept, kNone}, {noise}, sequence);
  graph.begin_op("aten::div_.Scalar", {noise, kept}, sequence);
  const TensorRef wrapped = wrapped_number(graph, DType::kFloat64);
  graph.begin_op("aten::div_.Tensor", {noise, wrapped});
  cast_wrapped_number(graph, wrapped, graph.dtype(x));
  graph.end_op({noise});
  graph.end_op({noise});
  return mul(tape, x, noise);
}

}  // namespace

Dropped native_dropout(GraphBuilder& graph, TensorRef x, double probability,
                       std::int64_t sequence) {
  graph.begin_op("aten::native_dropout", {x, probability, true}, sequence);
  const TensorRef mask = empty_like(graph, x, DType::kBool);
  const TensorRef out = empty_like(graph, x);
  graph.end_op({out, mask});
  return {out, mask};
}

TensorRef native_dropout_backward(GraphBuilder& graph, TensorRef gradient, TensorRef mask,
                                  double probability) {
  graph.begin_op("aten::native_dropout_backward", {gradient, mask, 1.0 / (1.0 - probability)});
  return graph.end_with(empty_like_contiguous(graph, gradient));
}

TensorRef dropout(AutogradTape& tape, TensorRef x, double probability) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::dropout", {x, probability, true}, tape.sequence());
  TensorRef out = x;
  if (probability > 0) {
    out = graph.pytorch().on_gpu() ? fused_dropout(tape, x, probability)
                                   : dropout_by_noise(tape, x, probability);
  }
  return graph.end_with(out);
}

}  // namespace perfmodel
