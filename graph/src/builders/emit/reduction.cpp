#include "reduction.hpp"

namespace perfmodel {

TensorRef divide(AutogradTape& tape, TensorRef x, std::int64_t count) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = divide(graph, x, count, tape.sequence());
  return tape.record_unary("DivBackward1", x, out, [&graph, count](TensorRef gradient) {
    return divide(graph, gradient, count);
  });
}

}  // namespace perfmodel
