#include "matmul.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "memory.hpp"
#include "pointwise.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

// Products of fewer multiplications than this are computed by a plain loop on a CPU.
constexpr std::int64_t kSmallBatchProduct = 400;

bool column_major(const GraphBuilder& graph, TensorRef x) {
  return graph.strides(x)[0] == 1 && graph.strides(x)[1] == graph.shape(x)[0];
}

TensorRef result_of(GraphBuilder& graph, TensorRef a, TensorRef b) {
  Shape shape = graph.shape(a);
  shape.back() = graph.shape(b).back();
  return graph.new_tensor(graph.dtype(a), std::move(shape));
}

void resolve_conj(GraphBuilder& graph, TensorRef x) {
  graph.leaf_op("aten::resolve_conj", {x}, {x});
}

// Whether BLAS takes the matrix as it is, column after column, with `rows` elements in a column.
bool is_column_major(const Shape& shape, const Shape& strides) {
  return strides[0] == 1 && strides[1] >= std::max<std::int64_t>(1, shape[0]);
}

Shape reversed(Shape values) {
  std::reverse(values.begin(), values.end());
  return values;
}

// Generic BLAS on a CPU (at::native::addmm_impl_cpu_): all three matrices turn round if the result
// is stored row after row, and matrices that BLAS need not transpose are checked for conjugation.
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

// Without MKL the batch is a loop over its products.
void bmm_on_cpu(GraphBuilder& graph, TensorRef result, TensorRef a, TensorRef b) {
  resolve_conj(graph, b);
  resolve_conj(graph, a);
  const Shape &rows = graph.shape(a), &columns = graph.shape(b);
  if (graph.pytorch().mkl || rows[1] * rows[2] * columns[2] < kSmallBatchProduct) return;
  for (std::int64_t i = 0; i < rows[0]; ++i) {
    const TensorRef part = select(graph, result, 0, i);
    const TensorRef right = select(graph, b, 0, i);
    const TensorRef left = select(graph, a, 0, i);
    prepare_blas(graph, part, left, right);
  }
}

}  // namespace

TensorRef mm(GraphBuilder& graph, TensorRef a, TensorRef b, std::int64_t sequence) {
  const TensorRef made = result_of(graph, a, b);
  graph.begin_op("aten::mm", {a, b}, sequence);
  if (!graph.pytorch().on_gpu()) prepare_blas(graph, made, a, b);
  return graph.end_with(made);
}

TensorRef bmm(GraphBuilder& graph, TensorRef a, TensorRef b, std::int64_t sequence) {
  const TensorRef made = result_of(graph, a, b);
  graph.begin_op("aten::bmm", {a, b}, sequence);
  if (!graph.pytorch().on_gpu()) bmm_on_cpu(graph, made, a, b);
  return graph.end_with(made);
}

TensorRef addmm(GraphBuilder& graph, TensorRef bias, TensorRef a, TensorRef b,
                std::int64_t sequence) {
  const TensorRef made = result_of(graph, a, b);
  graph.begin_op("aten::addmm", {bias, a, b, 1, 1}, sequence);
  const bool on_gpu = graph.pytorch().on_gpu();
  if (on_gpu && has_epilogue(graph.shape(b))) {
    if (graph.pytorch().before(2, 1)) cublaslt_workspace(graph);
  } else {
    const TensorRef each = expand(graph, bias, graph.shape(made));
    if (!on_gpu) {
      copy(graph, made, each);
      prepare_blas(graph, made, a, b);
    }
  }
  return graph.end_with(made);
}

// Gradients come in the order of the operands in memory, so that they need no copy later.
TensorRef left_gradient(GraphBuilder& graph, TensorRef gradient, TensorRef a, TensorRef b) {
  if (column_major(graph, a)) return t(graph, mm(graph, b, t(graph, gradient)));
  return mm(graph, gradient, t(graph, b));
}
TensorRef right_gradient(GraphBuilder& graph, TensorRef gradient, TensorRef a, TensorRef b) {
  if (column_major(graph, b)) return t(graph, mm(graph, t(graph, gradient), a));
  return mm(graph, t(graph, a), gradient);
}

namespace {

Shape with_last(Shape shape, std::int64_t last) {
  shape.back() = last;
  return shape;
}

// Leading axes of both, broadcast.
Shape batch_shape(const Shape& a, const Shape& b) {
  const std::size_t rank = std::max(a.size(), b.size()) - 2;
  Shape batch(rank, 1);
  for (const Shape* shape : {&a, &b}) {
    const std::size_t missing = rank - (shape->size() - 2);
    for (std::size_t i = 0; i + 2 < shape->size(); ++i) {
      batch[missing + i] = std::max(batch[missing + i], (*shape)[i]);
    }
  }
  return batch;
}

// [batch..., M, K] as one batch of matrices.
TensorRef as_batch(AutogradTape& tape, TensorRef x, Shape batch) {
  std::int64_t count = 1;
  for (std::int64_t size : batch) count *= size;
  const Shape shape = tape.graph().shape(x);
  const std::int64_t rows = shape[shape.size() - 2], columns = shape.back();
  batch.insert(batch.end(), {rows, columns});
  return reshape(tape, expand(tape, x, batch), {count, rows, columns});
}

}  // namespace

TensorRef matmul(AutogradTape& tape, TensorRef a, TensorRef b) {
  GraphBuilder& graph = tape.graph();
  const Shape left = graph.shape(a), right = graph.shape(b);
  graph.begin_op("aten::matmul", {a, b}, tape.sequence());
  TensorRef out;
  if (left.size() == 2 && right.size() == 2) {
    out = mm(tape, a, b);
  } else if (right.size() == 2) {  // one product of all rows
    const TensorRef rows = reshape(tape, a, {graph.numel(a) / left.back(), left.back()});
    out = unsafe_view(tape, mm(tape, rows, b), with_last(left, right.back()));
  } else {
    Shape shape = batch_shape(left, right);
    const TensorRef batch_a = as_batch(tape, a, shape);
    const TensorRef batch_b = as_batch(tape, b, shape);
    shape.insert(shape.end(), {left[left.size() - 2], right.back()});
    out = unsafe_view(tape, bmm(tape, batch_a, batch_b), shape);
  }
  return graph.end_with(out);
}

namespace {

// The rows of [B, S, K] are contiguous: one addmm for all of them.
TensorRef linear_of_rows(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias) {
  GraphBuilder& graph = tape.graph();
  const Shape shape = graph.shape(x);
  const Shape rows = {shape[0] * shape[1], shape[2]};
  TensorRef flat, weight_t;
  if (graph.pytorch().before(2, 0)) {
    weight_t = t(tape, weight);
    flat = view(tape, x, rows);
  } else {
    flat = reshape(tape, x, rows);
    weight_t = t(tape, weight);
  }
  return view(tape, addmm(tape, bias, flat, weight_t), with_last(shape, graph.shape(weight)[0]));
}

}  // namespace

TensorRef linear(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias) {
  GraphBuilder& graph = tape.graph();
  const std::size_t rank = graph.shape(x).size();
  const Value bias_value = bias.exists() ? Value(bias) : Value(kNone);
  graph.begin_op("aten::linear", {x, weight, bias_value}, tape.sequence());
  TensorRef out;
  if (bias.exists() && rank == 2) {
    out = addmm(tape, bias, x, t(tape, weight));
  } else if (bias.exists() && rank == 3 && graph.is_contiguous(x)) {
    out = linear_of_rows(tape, x, weight, bias);
  } else {
    out = matmul(tape, x, t(tape, weight));
    if (bias.exists()) add_in_place(tape, out, bias);
  }
  return graph.end_with(out);
}

}  // namespace perfmodel
