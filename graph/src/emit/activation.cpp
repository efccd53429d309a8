#include "activation.hpp"

#include "memory.hpp"

namespace perfmodel {
TensorRef relu(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = like(graph, x);
  graph.begin_op("aten::relu", {x}, tape.sequence());
  graph.leaf_op("aten::clamp_min", {x, 0}, {out});
  graph.end_op({out});
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
  graph.begin_op("aten::relu_", {x}, tape.sequence());
  graph.leaf_op("aten::clamp_min_", {x, 0}, {x});
  graph.end_op({x});
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
  const TensorRef out = like(graph, x);
  graph.leaf_op("aten::sigmoid", {x}, {out}, tape.sequence());
  tape.record("SigmoidBackward0", {x}, out,
              [&graph, out](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef made = like(graph, out);
                graph.leaf_op("aten::sigmoid_backward", {gradient, out}, {made});
                return {made};
              });
  return out;
}

}  // namespace perfmodel
