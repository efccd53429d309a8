#include "matmul.hpp"

#include <algorithm>
#include <array>

#include "memory.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

// Whether BLAS takes the matrix as it lies, column after column, with `rows` elements in a column.
bool is_column_major(const Shape& shape, const Shape& strides) {
  return strides[0] == 1 && strides[1] >= std::max<std::int64_t>(1, shape[0]);
}

Shape reversed(Shape values) {
  std::reverse(values.begin(), values.end());
  return values;
}

void resolve_conj(GraphBuilder& graph, TensorRef x) {
  graph.leaf_op("aten::resolve_conj", {x}, {x});
}

// Generic BLAS on a CPU (at::native::addmm_impl_cpu_): all three matrices turn round if the result
// lies row after row, and those that BLAS need not transpose are checked for conjugation.
void prepare_blas(GraphBuilder& graph, TensorRef out, TensorRef a, TensorRef b) {
  const Shape &shape = graph.shape(out), &strides = graph.strides(out);
  const bool columns =
      strides[0] == 1 && (shape[1] == 1 || strides[1] >= std::max<std::int64_t>(1, shape[0]));
  resolve_conj(graph, out);
  for (TensorRef x : columns ? std::array{a, b} : std::array{b, a}) {
    const Shape &from = graph.shape(x), &steps = graph.strides(x);
    if (columns ? is_column_major(from, steps) : is_column_major(reversed(from), reversed(steps))) {
      resolve_conj(graph, x);
    }
  }
}

// cuBLASLt adds a bias itself, except for thin matrices.
bool has_epilogue(const Shape& b) { return b[0] > 1 && b[1] > 1; }

void cublaslt_workspace(GraphBuilder& graph) { empty_bytes(graph, 1048576); }

std::vector<TensorRef> addmm_backward(AutogradTape& tape, TensorRef gradient, TensorRef x,
                                      TensorRef weight_t) {
  GraphBuilder& graph = tape.graph();
  TensorRef x_gradient;
  if (tape.requires_grad(x)) {
    const TensorRef weight = t(graph, weight_t);
    x_gradient = mm(graph, gradient, weight);
  }
  const TensorRef gradient_t = t(graph, gradient);
  const TensorRef weight_gradient = mm(graph, gradient_t, x);
  return {gradient, x_gradient, t(graph, weight_gradient)};
}

}  // namespace

TensorRef mm(GraphBuilder& graph, TensorRef a, TensorRef b) {
  const TensorRef out = graph.new_tensor(graph.dtype(a), {graph.shape(a)[0], graph.shape(b)[1]});
  graph.begin_op("aten::mm", {a, b});
  if (!graph.pytorch().on_gpu()) prepare_blas(graph, out, a, b);
  graph.end_op({out});
  return out;
}

TensorRef addmm(GraphBuilder& graph, TensorRef bias, TensorRef a, TensorRef b,
                std::int64_t sequence) {
  const TensorRef out = graph.new_tensor(graph.dtype(a), {graph.shape(a)[0], graph.shape(b)[1]});
  graph.begin_op("aten::addmm", {bias, a, b, 1, 1}, sequence);
  const bool on_gpu = graph.pytorch().on_gpu();
  if (on_gpu && has_epilogue(graph.shape(b))) {
    if (graph.pytorch().before(2, 1)) cublaslt_workspace(graph);
  } else {
    const TensorRef each = expand(graph, bias, graph.shape(out));
    if (!on_gpu) {
      copy(graph, out, each);
      prepare_blas(graph, out, a, b);
    }
  }
  graph.end_op({out});
  return out;
}

TensorRef linear(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias) {
  GraphBuilder& graph = tape.graph();
  graph.begin_op("aten::linear", {x, weight, bias}, tape.sequence());

  const TensorRef weight_t = t(graph, weight, tape.sequence());
  tape.record(
      "TBackward0", {weight}, weight_t,
      [&graph](TensorRef gradient) -> std::vector<TensorRef> { return {t(graph, gradient)}; });

  const TensorRef out = addmm(graph, bias, x, weight_t, tape.sequence());
  tape.record("AddmmBackward0", {bias, x, weight_t}, out, [&tape, x, weight_t](TensorRef gradient) {
    return addmm_backward(tape, gradient, x, weight_t);
  });

  graph.end_op({out});
  return out;
}

TensorRef bmm(AutogradTape& tape, TensorRef a, TensorRef b) {
  GraphBuilder& graph = tape.graph();
  const Shape& rows = graph.shape(a);
  const TensorRef out = graph.new_tensor(graph.dtype(a), {rows[0], rows[1], graph.shape(b)[2]});
  graph.leaf_op("aten::bmm", {a, b}, {out}, tape.sequence());
  tape.record("BmmBackward0", {a, b}, out,
              [&graph, a, b](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef a_t = transpose(graph, a, 1, 2);
                const TensorRef b_gradient = like(graph, b);
                graph.leaf_op("aten::bmm", {a_t, gradient}, {b_gradient});
                const TensorRef b_t = transpose(graph, b, 1, 2);
                const TensorRef a_gradient = like(graph, a);
                graph.leaf_op("aten::bmm", {gradient, b_t}, {a_gradient});
                return {a_gradient, b_gradient};
              });
  return out;
}

}  // namespace perfmodel
