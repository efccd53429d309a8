#include "loss.hpp"

#include "memory.hpp"
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

}  // namespace perfmodel
