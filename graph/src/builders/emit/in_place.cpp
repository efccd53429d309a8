#include "in_place.hpp"

#include <memory>

#include "memory.hpp"
#include "pointwise.hpp"
#include "update.hpp"

namespace perfmodel {
namespace {

// The result of an op on two operands that allocates it by a call of its own.
TensorRef iterator_output(GraphBuilder& graph, TensorRef a, TensorRef b) {
  const TensorRef made = pointwise_result(graph, {a, b}, graph.dtype(a));
  if (!graph.is_contiguous(made)) {
    allocate_strided(graph, made, graph.strides(made), {.layout = false});
    return made;
  }
  // If both are contiguous, the order is known.
  const bool order = graph.is_contiguous(a) && graph.is_contiguous(b);
  allocate(graph, made, {.layout = false, .order = order});
  return made;
}

// A copy that autograd records but that needs no derivative.
TensorRef saved_clone(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::clone", {x, kNone}, tape.sequence());
  TensorRef made;
  if (graph.is_contiguous(x)) {
    made = like(graph, x);
    allocate_strided(graph, made, graph.strides(x));
  } else {
    made = empty_like(graph, x);
  }
  copy(graph, made, x);
  graph.end_op({made});
  return tape.record_unary("CloneBackward0", x, made, [](TensorRef gradient) { return gradient; });
}

}  // namespace

void mul_in_place(AutogradTape& tape, TensorRef x, TensorRef other) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::mul_.Tensor", {x, other}, tape.sequence());
  // The backward function takes its number before the copy takes one.
  const auto saved = std::make_shared<TensorRef>();
  tape.record("MulBackward0", {x, other}, x,
              [&tape, saved, other](TensorRef gradient) -> std::vector<TensorRef> {
                GraphBuilder& inner = tape.graph();
                TensorRef other_gradient;
                if (tape.requires_grad(other)) {
                  other_gradient = mul(inner, gradient, *saved);
                }
                return {mul(inner, gradient, other), other_gradient};
              });
  *saved = saved_clone(tape, x);
  graph.end_op({x});
}

void clamp_as_hardtanh(GraphBuilder& graph, TensorRef x, const Value& low, const Value& high) {
  graph.begin_op("aten::hardtanh.out", {x, low, high, x});
  graph.begin_op("aten::clamp.out", {x, low, high, x});
  if (graph.pytorch().before(2, 0)) to_same_dtype(graph, x);
  graph.end_op({x});
  graph.end_op({x});
}

void hardtanh_in_place(AutogradTape& tape, TensorRef x, int low, int high) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::hardtanh_", {x, low, high}, tape.sequence());
  const auto saved = std::make_shared<TensorRef>();
  tape.record_unary("HardtanhBackward0", x, x, [&graph, saved, low, high](TensorRef gradient) {
    graph.begin_op("aten::hardtanh_backward", {gradient, *saved, low, high});
    return graph.end_with(iterator_output(graph, gradient, *saved));
  });
  *saved = saved_clone(tape, x);
  clamp_as_hardtanh(graph, x, low, high);
  graph.end_op({x});
}

}  // namespace perfmodel
