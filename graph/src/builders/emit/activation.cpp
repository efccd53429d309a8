#include "activation.hpp"

#include <cmath>
#include <numbers>

#include "memory.hpp"
#include "pointwise.hpp"

namespace perfmodel {
TensorRef relu(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  const TensorRef out = like(graph, x);
  graph.begin_op("aten::relu", {x}, sequence);
  graph.leaf_op("aten::clamp_min", {x, 0}, {out});
  graph.end_op({out});
  return out;
}

void relu_in_place(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  graph.begin_op("aten::relu_", {x}, sequence);
  graph.leaf_op("aten::clamp_min_", {x, 0}, {x});
  graph.end_op({x});
}

TensorRef relu(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = relu(graph, x, tape.sequence());
  tape.record("ReluBackward0", {x}, out,
              [&graph, out](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef made = like(graph, out);
                graph.leaf_op("aten::threshold_backward", {gradient, out, 0}, {made});
                return {made};
              });
  return out;
}

TensorRef relu_in_place(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  relu_in_place(graph, x, tape.sequence());
  tape.record("ReluBackward0", {x}, x, [&graph, x](TensorRef gradient) -> std::vector<TensorRef> {
    const TensorRef made = like(graph, x);
    graph.leaf_op("aten::threshold_backward", {gradient, x, 0}, {made});
    return {made};
  });
  return x;
}

TensorRef leaky_relu(AutogradTape& tape, TensorRef x, double slope) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = like(graph, x);
  graph.leaf_op("aten::leaky_relu", {x, slope}, {out}, tape.sequence());
  tape.record("LeakyReluBackward0", {x}, out,
              [&graph, x, slope](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef made = like(graph, x);
                graph.leaf_op("aten::leaky_relu_backward", {gradient, x, slope, false}, {made});
                return {made};
              });
  return out;
}

TensorRef leaky_relu_in_place(AutogradTape& tape, TensorRef x, double slope) {
  GraphBuilder& graph = tape.graph();
  graph.leaf_op("aten::leaky_relu_", {x, slope}, {x}, tape.sequence());
  tape.record("LeakyReluBackward1", {x}, x,
              [&graph, x, slope](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef made = like(graph, x);
                graph.leaf_op("aten::leaky_relu_backward", {gradient, x, slope, true}, {made});
                return {made};
              });
  return x;
}

TensorRef sigmoid(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = sigmoid(graph, x, tape.sequence());
  tape.record("SigmoidBackward0", {x}, out,
              [&graph, out](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef made = like(graph, out);
                graph.leaf_op("aten::sigmoid_backward", {gradient, out}, {made});
                return {made};
              });
  return out;
}

TensorRef tanh(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = unary(graph, "aten::tanh", x, tape.sequence());
  tape.record("TanhBackward0", {x}, out,
              [&graph, out](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef made = pointwise_result(graph, {gradient, out}, graph.dtype(out));
                graph.leaf_op("aten::tanh_backward", {gradient, out}, {made});
                return {made};
              });
  return out;
}

namespace {

TensorRef gelu_by(AutogradTape& tape, TensorRef x, const char* approximate) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = pointwise_result(graph, {x}, graph.dtype(x));
  graph.leaf_op("aten::gelu", {x, approximate}, {out}, tape.sequence());
  tape.record("GeluBackward0", {x}, out,
              [&graph, x, approximate](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef made = pointwise_result(graph, {gradient, x}, graph.dtype(x));
                graph.leaf_op("aten::gelu_backward", {gradient, x, approximate}, {made});
                return {made};
              });
  return out;
}

}  // namespace

TensorRef gelu(AutogradTape& tape, TensorRef x) { return gelu_by(tape, x, "none"); }

TensorRef gelu_tanh(AutogradTape& tape, TensorRef x) { return gelu_by(tape, x, "tanh"); }

TensorRef silu(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = unary(graph, "aten::silu", x, tape.sequence());
  tape.record("SiluBackward0", {x}, out, [&graph, x](TensorRef gradient) -> std::vector<TensorRef> {
    const TensorRef made = pointwise_result(graph, {gradient, x}, graph.dtype(x));
    graph.leaf_op("aten::silu_backward", {gradient, x}, {made});
    return {made};
  });
  return out;
}

// 0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))
TensorRef gelu_new(AutogradTape& tape, TensorRef x) {
  const TensorRef half = mul(tape, x, 0.5);
  const TensorRef cube = mul(tape, pow(tape, x, 3.0), 0.044715);
  const TensorRef inner = mul(tape, add(tape, x, cube), std::sqrt(2.0 / std::numbers::pi));
  return mul(tape, half, add(tape, tanh(tape, inner), 1.0));
}

}  // namespace perfmodel
