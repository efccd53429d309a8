#include "pointwise.hpp"

#include <algorithm>
#include <numeric>
#include <string_view>
#include <utility>

#include "memory.hpp"
#include "update.hpp"
#include "views.hpp"

namespace perfmodel {
namespace {

Shape broadcast(const GraphBuilder& graph, const std::vector<TensorRef>& inputs) {
  Shape shape;
  for (TensorRef input : inputs) {
    const Shape& other = graph.shape(input);
    if (other.size() > shape.size()) shape.insert(shape.begin(), other.size() - shape.size(), 1);
    for (std::size_t i = 0; i < other.size(); ++i) {
      std::int64_t& size = shape[shape.size() - other.size() + i];
      if (other[i] != 1) size = other[i];
    }
  }
  return shape;
}

// Dense strides of `shape` whose axes follow each other in memory as in `order`.
Shape strides_in_order(const Shape& shape, const Shape& order) {
  std::vector<std::size_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), std::size_t{0});
  std::stable_sort(axes.begin(), axes.end(), [&](std::size_t a, std::size_t b) {
    return order[a] > order[b];  // equal ones stay row-major
  });
  Shape strides(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = axes.size(); i-- > 0;) {
    strides[axes[i]] = stride;
    stride *= std::max<std::int64_t>(shape[axes[i]], 1);
  }
  return strides;
}

// A number next to a tensor is computed with in the tensor's type.
TensorRef wrap(GraphBuilder& graph, Number number) {
  return wrapped_number(graph, number.integer ? DType::kInt64 : DType::kFloat64);
}

bool takes_alpha(std::string_view op) {
  return op == "aten::add.Tensor" || op == "aten::sub.Tensor";
}

std::vector<Value> with_alpha(std::string_view op, TensorRef a, TensorRef b) {
  std::vector<Value> arguments = {a, b};
  if (takes_alpha(op)) arguments.emplace_back(1);
  return arguments;
}

TensorRef binary_with_wrapped(GraphBuilder& graph, const char* op, TensorRef x, TensorRef number,
                              std::int64_t sequence) {
  const TensorRef made = pointwise_result(graph, {x}, graph.dtype(x));
  graph.begin_op(op, with_alpha(op, x, number), sequence);
  cast_wrapped_number(graph, number, graph.dtype(x));
  graph.end_op({made});
  return made;
}

}  // namespace

TensorRef pointwise_result(GraphBuilder& graph, const std::vector<TensorRef>& inputs, DType dtype) {
  Shape shape = broadcast(graph, inputs);
  for (TensorRef input : inputs) {
    if (graph.shape(input) != shape) continue;
    if (graph.is_contiguous(input)) break;
    Shape strides = strides_in_order(shape, graph.strides(input));
    return graph.new_tensor(dtype, graph.device(), std::move(shape), std::move(strides));
  }
  return graph.new_tensor(dtype, std::move(shape));
}

TensorRef unary(GraphBuilder& graph, const char* op, TensorRef x, std::int64_t sequence) {
  const TensorRef made = pointwise_result(graph, {x}, graph.dtype(x));
  graph.leaf_op(op, {x}, {made}, sequence);
  return made;
}

TensorRef binary(GraphBuilder& graph, const char* op, TensorRef a, TensorRef b,
                 std::int64_t sequence) {
  const TensorRef made = pointwise_result(graph, {a, b}, graph.dtype(a));
  graph.leaf_op(op, with_alpha(op, a, b), {made}, sequence);
  return made;
}

TensorRef binary(GraphBuilder& graph, const char* op, TensorRef x, Number number,
                 std::int64_t sequence) {
  return binary_with_wrapped(graph, op, x, wrap(graph, number), sequence);
}

TensorRef add(GraphBuilder& graph, TensorRef a, TensorRef b, std::int64_t sequence) {
  return binary(graph, "aten::add.Tensor", a, b, sequence);
}

TensorRef neg(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  return unary(graph, "aten::neg", x, sequence);
}

TensorRef sigmoid(GraphBuilder& graph, TensorRef x, std::int64_t sequence) {
  return unary(graph, "aten::sigmoid", x, sequence);
}

TensorRef subtract_from(GraphBuilder& graph, Number number, TensorRef x, std::int64_t sequence) {
  const TensorRef made = pointwise_result(graph, {x}, graph.dtype(x));
  graph.begin_op("aten::rsub.Scalar", {x, number.argument(), 1}, sequence);
  const TensorRef wrapped = wrap(graph, number);
  graph.begin_op("aten::sub.Tensor", {wrapped, x, 1});
  cast_wrapped_number(graph, wrapped, graph.dtype(x));
  graph.end_op({made});
  graph.end_op({made});
  return made;
}

TensorRef pow(GraphBuilder& graph, TensorRef x, Number exponent, std::int64_t sequence) {
  const TensorRef made = pointwise_result(graph, {x}, graph.dtype(x));
  const Value number = exponent.argument();
  graph.begin_op("aten::pow.Tensor_Scalar", {x, number}, sequence);
  graph.leaf_op("aten::result_type.Scalar", {x, number}, {scalar_type_code(graph.dtype(x))});
  to_same_dtype(graph, x);
  if (exponent.value == 1) copy(graph, made, x);
  graph.end_op({made});
  return made;
}

namespace {

TensorRef where(GraphBuilder& graph, TensorRef mask, TensorRef x, TensorRef other,
                std::int64_t sequence) {
  const TensorRef made = pointwise_result(graph, {x, mask, other}, graph.dtype(x));
  graph.begin_op("aten::where.self", {mask, x, other}, sequence);
  empty(graph, graph.dtype(x), {0});  // the output before it has its size
  graph.end_op({made});
  return made;
}

// Tensor times a C++ number.
TensorRef scaled(GraphBuilder& graph, const char* scalar_op, const char* op, TensorRef x,
                 Number number) {
  graph.begin_op(scalar_op, {x, number.argument()});
  const TensorRef made = binary(graph, op, x, number);
  graph.end_op({made});
  return made;
}

}  // namespace

// A CPU fills it without a call.
TensorRef scalar_tensor(GraphBuilder& graph, Number number, DType dtype) {
  graph.begin_op("aten::scalar_tensor",
                 {number.argument(), scalar_type_code(dtype), 0, graph.device_value(), kNone});
  TensorRef made;
  if (graph.pytorch().on_gpu()) {
    made = empty(graph, dtype, {});
    fill(graph, made, number.argument());
  } else {
    made = graph.new_tensor(dtype, {});
  }
  graph.end_op({made});
  return made;
}

TensorRef where_else(GraphBuilder& graph, TensorRef mask, TensorRef x, int number) {
  const DType dtype = graph.dtype(x);
  graph.begin_op("aten::where.ScalarOther", {mask, x, number});
  const TensorRef other = scalar_tensor(graph, number, dtype);
  to_same_dtype(graph, x);
  const TensorRef made = where(graph, mask, x, other, -1);
  graph.end_op({made});
  return made;
}

TensorRef masked_fill(GraphBuilder& graph, TensorRef x, TensorRef mask, Number value,
                      std::int64_t sequence) {
  graph.begin_op("aten::masked_fill.Scalar", {x, mask, value.argument()}, sequence);
  const Shape shape = graph.shape(x);
  expand(graph, x, shape);
  expand(graph, mask, shape);
  const TensorRef made = clone(graph, x);
  graph.leaf_op("aten::masked_fill_.Scalar", {made, mask, value.argument()}, {made});
  graph.end_op({made});
  return made;
}

TensorRef cast(AutogradTape& tape, TensorRef x, DType dtype) {
  GraphBuilder& graph = tape.graph();
  const DType from = graph.dtype(x);
  if (from == dtype) return x;
  const TensorRef made = pointwise_result(graph, {x}, dtype);
  to_dtype(graph, x, made, tape.sequence());
  tape.record("ToCopyBackward0", {x}, made,
              [&graph, from](TensorRef gradient) -> std::vector<TensorRef> {
                return {to_dtype(graph, gradient, from)};
              });
  return made;
}

TensorRef add(AutogradTape& tape, TensorRef a, TensorRef b) {
  const TensorRef out = add(tape.graph(), a, b, tape.sequence());
  tape.record("AddBackward0", {a, b}, out, [](TensorRef gradient) -> std::vector<TensorRef> {
    return {gradient, gradient};
  });
  return out;
}

TensorRef add(AutogradTape& tape, TensorRef x, Number number) {
  const TensorRef out = binary(tape.graph(), "aten::add.Tensor", x, number, tape.sequence());
  tape.record("AddBackward0", {x}, out,
              [](TensorRef gradient) -> std::vector<TensorRef> { return {gradient}; });
  return out;
}

void add_in_place(AutogradTape& tape, TensorRef a, TensorRef b) {
  add_(tape.graph(), a, b, tape.sequence());
  tape.record("AddBackward0", {a, b}, a, [](TensorRef gradient) -> std::vector<TensorRef> {
    return {gradient, gradient};
  });
}

TensorRef sub(AutogradTape& tape, TensorRef a, TensorRef b) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = binary(graph, "aten::sub.Tensor", a, b, tape.sequence());
  tape.record("SubBackward0", {a, b}, out, [&tape, b](TensorRef gradient) {
    std::vector<TensorRef> gradients = {gradient, {}};
    if (tape.requires_grad(b)) gradients[1] = neg(tape.graph(), gradient);
    return gradients;
  });
  return out;
}

TensorRef subtract_from(AutogradTape& tape, Number number, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = subtract_from(graph, number, x, tape.sequence());
  tape.record("RsubBackward1", {x}, out, [&graph](TensorRef gradient) -> std::vector<TensorRef> {
    return {neg(graph, gradient)};
  });
  return out;
}

TensorRef mul(AutogradTape& tape, TensorRef a, TensorRef b) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = binary(graph, "aten::mul.Tensor", a, b, tape.sequence());
  tape.record("MulBackward0", {a, b}, out, [&tape, &graph, a, b](TensorRef gradient) {
    std::vector<TensorRef> gradients(2);
    if (tape.requires_grad(b)) gradients[1] = binary(graph, "aten::mul.Tensor", gradient, a);
    if (tape.requires_grad(a)) gradients[0] = binary(graph, "aten::mul.Tensor", gradient, b);
    return gradients;
  });
  return out;
}

namespace {
// Multiplied or divided by a number, the gradient is as well, by the same wrapped number.
TensorRef with_number(AutogradTape& tape, const char* op, const char* backward, TensorRef x,
                      Number number) {
  GraphBuilder& graph = tape.graph();
  const TensorRef wrapped = wrap(graph, number);
  const TensorRef out = binary_with_wrapped(graph, op, x, wrapped, tape.sequence());
  tape.record(backward, {x}, out,
              [&graph, op, wrapped](TensorRef gradient) -> std::vector<TensorRef> {
                return {binary_with_wrapped(graph, op, gradient, wrapped, -1)};
              });
  return out;
}
}  // namespace

TensorRef mul(AutogradTape& tape, TensorRef x, Number number) {
  return with_number(tape, "aten::mul.Tensor", "MulBackward0", x, number);
}

TensorRef div(AutogradTape& tape, TensorRef x, Number number) {
  return with_number(tape, "aten::div.Tensor", "DivBackward0", x, number);
}

TensorRef div(AutogradTape& tape, TensorRef x, TensorRef divisor) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = binary(graph, "aten::div.Tensor", x, divisor, tape.sequence());
  tape.record("DivBackward0", {x}, out,
              [&graph, divisor](TensorRef gradient) -> std::vector<TensorRef> {
                return {binary(graph, "aten::div.Tensor", gradient, divisor)};
              });
  return out;
}

TensorRef pow(AutogradTape& tape, TensorRef x, Number exponent) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = pow(graph, x, exponent, tape.sequence());
  const double power = exponent.value;
  tape.record(
      "PowBackward0", {x}, out, [&graph, x, power](TensorRef gradient) -> std::vector<TensorRef> {
        const TensorRef lower = pow(graph, x, power - 1, -1);
        const TensorRef slope = scaled(graph, "aten::mul.Scalar", "aten::mul.Tensor", lower, power);
        return {binary(graph, "aten::mul.Tensor", gradient, slope)};
      });
  return out;
}

TensorRef neg(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = neg(graph, x, tape.sequence());
  tape.record("NegBackward0", {x}, out, [&graph](TensorRef gradient) -> std::vector<TensorRef> {
    return {neg(graph, gradient)};
  });
  return out;
}

TensorRef rsqrt(AutogradTape& tape, TensorRef x) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = unary(graph, "aten::rsqrt", x, tape.sequence());
  tape.record("RsqrtBackward0", {x}, out,
              [&graph, out](TensorRef gradient) -> std::vector<TensorRef> {
                const TensorRef cube = pow(graph, out, 3, -1);
                const TensorRef half =
                    scaled(graph, "aten::mul.Scalar", "aten::mul.Tensor", gradient, -0.5);
                return {binary(graph, "aten::mul.Tensor", half, cube)};
              });
  return out;
}

TensorRef maximum(AutogradTape& tape, TensorRef a, TensorRef b) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = pointwise_result(graph, {a, b}, graph.dtype(a));
  graph.begin_op("aten::max.other", {a, b}, tape.sequence());
  graph.leaf_op("aten::maximum", {a, b}, {out}, tape.sequence());
  graph.end_op({out});
  tape.record(
      "MaximumBackward0", {a}, out, [&graph, a, b](TensorRef gradient) -> std::vector<TensorRef> {
        // If both are equal, they share the gradient.
        const TensorRef half = scaled(graph, "aten::div.Scalar", "aten::div.Tensor", gradient, 2);
        const TensorRef equal = pointwise_result(graph, {a, b}, DType::kBool);
        graph.leaf_op("aten::eq.Tensor", {a, b}, {equal});
        const TensorRef made = where(graph, equal, half, gradient, -1);
        const TensorRef less = pointwise_result(graph, {a, b}, DType::kBool);
        graph.leaf_op("aten::lt.Tensor", {a, b}, {less});
        graph.leaf_op("aten::masked_fill_.Scalar", {made, less, 0}, {made});
        return {made};
      });
  return out;
}

TensorRef where(AutogradTape& tape, TensorRef mask, TensorRef x, TensorRef other) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = where(graph, mask, x, other, tape.sequence());
  tape.record("WhereBackward0", {x}, out,
              [&graph, mask](TensorRef gradient) -> std::vector<TensorRef> {
                return {where_else(graph, mask, gradient, 0)};
              });
  return out;
}

TensorRef masked_fill(AutogradTape& tape, TensorRef x, TensorRef mask, Number value) {
  GraphBuilder& graph = tape.graph();
  const TensorRef out = masked_fill(graph, x, mask, value, tape.sequence());
  tape.record("MaskedFillBackward0", {x}, out,
              [&graph, mask](TensorRef gradient) -> std::vector<TensorRef> {
                return {masked_fill(graph, gradient, mask, 0)};
              });
  return out;
}

}  // namespace perfmodel
