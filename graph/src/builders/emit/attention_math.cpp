#include <cmath>
#include <limits>

#include "attention.hpp"
#include "dropout.hpp"
#include "matmul.hpp"
#include "memory.hpp"
#include "pointwise.hpp"
#include "softmax.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

// 0 if a query may look at a key, else -inf.
TensorRef triangle(AutogradTape& tape, std::int64_t queries, std::int64_t keys, DType dtype) {
  GraphBuilder& graph = tape.graph();
  const std::int64_t sequence = tape.sequence();
  const Shape shape = {queries, keys};
  const TensorRef whole = graph.new_tensor(DType::kBool, shape);
  graph.begin_op("aten::ones",
                 {shape, scalar_type_code(DType::kBool), 0, graph.device_value(), kNone});
  allocate(graph, whole);
  fill(graph, whole, 1.0, sequence);
  graph.end_op({whole});
  const TensorRef kept = graph.new_tensor(DType::kBool, shape);
  graph.leaf_op("aten::tril", {whole, 0}, {kept}, sequence);
  const TensorRef hidden = scalar_tensor(graph, -std::numeric_limits<double>::infinity(), dtype);
  const TensorRef zero = scalar_tensor(graph, 0.0, dtype);
  return graph.leaf("aten::where.self", {kept, zero, hidden}, graph.new_tensor(dtype, shape),
                    sequence);
}

}  // namespace

TensorRef math_attention(AutogradTape& tape, TensorRef q, TensorRef k, TensorRef v,
                         const FusedAttention& options) {
  GraphBuilder& graph = tape.graph();
  const DType dtype = graph.dtype(q);
  const Value mask = options.mask.exists() ? Value(options.mask) : Value(kNone);
  const Value scale = options.scale ? Value(*options.scale) : Value(kNone);
  graph.begin_op("aten::_scaled_dot_product_attention_math",
                 {q, k, v, mask, options.dropout, options.causal, kNone, scale, false},
                 tape.sequence());
  q = cast(tape, q, DType::kFloat32);
  k = cast(tape, k, DType::kFloat32);
  v = cast(tape, v, DType::kFloat32);
  const double width = static_cast<double>(graph.shape(q).back());
  const double root = std::sqrt(options.scale.value_or(1.0 / std::sqrt(width)));
  q = mul(tape, q, root);
  TensorRef added = options.mask;
  if (options.causal) {
    added = triangle(tape, graph.shape(q)[2], graph.shape(k)[2], DType::kFloat32);
  } else if (added.exists()) {
    added = cast(tape, added, DType::kFloat32);
  }
  const TensorRef turned = mul(tape, transpose(tape, k, -2, -1), root);
  const TensorRef scores = matmul(tape, q, turned);
  if (added.exists()) add_in_place(tape, scores, added);
  const TensorRef weights = safe_softmax(tape, scores);
  const TensorRef kept = options.dropout > 0 ? dropout(tape, weights, options.dropout) : weights;
  const TensorRef out = cast(tape, matmul(tape, kept, v), dtype);
  graph.end_op({out, weights});
  return out;
}

}  // namespace perfmodel
