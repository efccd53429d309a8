#include "reduction.hpp"

namespace perfmodel {

TensorRef sum(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = sum(graph, x, tape.sequence());
  tape.record("SumBackward0", {x}, out, [&graph, x](TensorRef gradient) -> std::vector<TensorRef> {
    return {expand_gradient(graph, gradient, graph.shape(x), {}, false)};
  });
  return out;
}

TensorRef sum(AutogradTape& tape, TensorRef x, const Shape& axes, bool keep_axes) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = sum(graph, x, axes, keep_axes, tape.sequence());
  tape.record("SumBackward1", {x}, out,
              [&graph, x, axes, keep_axes](TensorRef gradient) -> std::vector<TensorRef> {
                return {expand_gradient(graph, gradient, graph.shape(x), axes, keep_axes)};
              });
  return out;
}

TensorRef mean(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = mean(graph, x, tape.sequence());
  tape.record("MeanBackward0", {x}, out, [&graph, x](TensorRef gradient) -> std::vector<TensorRef> {
    const TensorRef each = expand_gradient(graph, gradient, graph.shape(x), {}, false);
    return {divide(graph, each, graph.numel(x))};
  });
  return out;
}

TensorRef mean(AutogradTape& tape, TensorRef x, const Shape& axes, bool keep_axes) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = mean(graph, x, axes, keep_axes, tape.sequence());
  tape.record("MeanBackward1", {x}, out,
              [&graph, x, axes, keep_axes](TensorRef gradient) -> std::vector<TensorRef> {
                const Shape& from = graph.shape(x);
                const TensorRef each = expand_gradient(graph, gradient, from, axes, keep_axes);
                return {divide(graph, each, reduced_count(from, axes))};
              });
  return out;
}

TensorRef divide(AutogradTape& tape, TensorRef x, std::int64_t count) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = divide(graph, x, count, tape.sequence());
  tape.record("DivBackward1", {x}, out,
              [&graph, count](TensorRef gradient) -> std::vector<TensorRef> {
                return {divide(graph, gradient, count)};
              });
  return out;
}

}  // namespace perfmodel
