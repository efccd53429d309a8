#include "loss.hpp"

#include "memory.hpp"
#include "reduction.hpp"
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

}  // namespace perfmodel
