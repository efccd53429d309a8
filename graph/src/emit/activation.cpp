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
