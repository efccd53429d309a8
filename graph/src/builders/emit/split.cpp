#include "split.hpp"

#include <algorithm>

#include "concat.hpp"
#include "memory.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

// Gradients of unused pieces are zero.
std::vector<TensorRef> complete(GraphBuilder& graph, std::vector<TensorRef> gradients,
                                const std::vector<TensorRef>& pieces) {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].exists()) continue;
    gradients[i] = zeros(graph, graph.dtype(pieces[i]), graph.shape(pieces[i]));
  }
  return gradients;
}

}  // namespace

std::vector<TensorRef> split(AutogradTape& tape, TensorRef x, std::int64_t size, int dim) {
  GraphBuilder& graph = tape.graph();
  const std::size_t axis = axis_of(graph, x, dim);
  const std::int64_t width = graph.shape(x)[axis];
  graph.begin_op("aten::split.Tensor", {x, size, dim}, tape.sequence());
  std::vector<TensorRef> pieces;
  for (std::int64_t start = 0; start < width; start += size) {
    const std::int64_t length = std::min(size, width - start);
    pieces.push_back(narrow(graph, x, dim, start, length));
  }
  graph.end_op({pieces});
  tape.record("SplitBackward0", {x}, pieces,
              [&graph, pieces, axis](const std::vector<TensorRef>& gradients) {
                const int back = static_cast<int>(axis);
                return std::vector<TensorRef>{cat(graph, complete(graph, gradients, pieces), back)};
              });
  return pieces;
}

std::vector<TensorRef> chunk(AutogradTape& tape, TensorRef x, int count, int dim) {
  GraphBuilder& graph = tape.graph();
  const std::int64_t width = graph.shape(x)[axis_of(graph, x, dim)];
  graph.begin_op("aten::chunk", {x, count, dim}, tape.sequence());
  std::vector<TensorRef> pieces = split(tape, x, (width + count - 1) / count, dim);
  return graph.end_with(pieces);
}

std::vector<TensorRef> unbind(AutogradTape& tape, TensorRef x, int dim) {
  GraphBuilder& graph = tape.graph();
  const std::size_t axis = axis_of(graph, x, dim);
  graph.begin_op("aten::unbind.int", {x, dim}, tape.sequence());
  std::vector<TensorRef> pieces;
  for (std::int64_t i = 0; i < graph.shape(x)[axis]; ++i) {
    pieces.push_back(select(graph, x, dim, i));
  }
  graph.end_op({pieces});
  tape.record(
      "UnbindBackward0", {x}, pieces,
      [&graph, pieces, dim](const std::vector<TensorRef>& gradients) {
        return std::vector<TensorRef>{stack(graph, complete(graph, gradients, pieces), dim)};
      });
  return pieces;
}

}  // namespace perfmodel
