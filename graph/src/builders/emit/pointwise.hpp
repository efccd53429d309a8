#pragma once

#include "emitter.hpp"

namespace perfmodel {

// Ops on each element. Tensors broadcast; the result has the memory order of the first tensor of
// its shape.

/// A number in an expression: PyTorch keeps integers and floating-point numbers apart.
struct Number {
  Number(int number) : value(number), integer(true) {}
  Number(double number) : value(number) {}

  double value;
  bool integer = false;
  Value argument() const {
    return integer ? Value(static_cast<std::int64_t>(value)) : Value(value);
  }
};

// Without gradient; `op` is the name with overload.
inline TensorRef unary(GraphBuilder& graph, std::string_view op, TensorRef x,
                       std::int64_t sequence = -1) {
  return emit(graph, op, {x}, sequence);
}
/// `b`: a tensor or a number. Additions and subtractions have a third argument, a factor of 1.
inline TensorRef binary(GraphBuilder& graph, std::string_view op, TensorRef a, Value b,
                        std::int64_t sequence = -1) {
  const bool scales = op == "aten::add.Tensor" || op == "aten::sub.Tensor";
  return scales ? emit(graph, op, {a, b, 1}, sequence) : emit(graph, op, {a, b}, sequence);
}
inline TensorRef binary(GraphBuilder& graph, std::string_view op, TensorRef x, Number number,
                        std::int64_t sequence = -1) {
  return binary(graph, op, x, number.argument(), sequence);
}
inline TensorRef add(GraphBuilder& graph, TensorRef a, TensorRef b, std::int64_t sequence = -1) {
  return binary(graph, "aten::add.Tensor", a, b, sequence);
}
inline TensorRef neg(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1) {
  return emit(graph, "aten::neg", {x}, sequence);
}
inline TensorRef sigmoid(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1) {
  return emit(graph, "aten::sigmoid", {x}, sequence);
}
/// `number - x`.
inline TensorRef subtract_from(GraphBuilder& graph, Number number, TensorRef x,
                               std::int64_t sequence = -1) {
  return emit(graph, "aten::rsub.Scalar", {x, number.argument(), 1}, sequence);
}
/// `torch.scalar_tensor(number)`
TensorRef scalar_tensor(GraphBuilder& graph, Number number, DType dtype);
/// x where `mask` holds, else `other`.
TensorRef where(GraphBuilder& graph, TensorRef mask, TensorRef x, TensorRef other,
                std::int64_t sequence = -1);
TensorRef pow(GraphBuilder& graph, TensorRef x, Number exponent, std::int64_t sequence = -1);

/// `x.to(dtype)`; `x` itself, without an op, if it has that type.
TensorRef cast(AutogradTape& tape, TensorRef x, DType dtype);
inline TensorRef add(AutogradTape& tape, TensorRef a, TensorRef b) {
  return emit(tape, "aten::add.Tensor", {a, b, 1});
}
inline TensorRef add(AutogradTape& tape, TensorRef x, Number number) {
  return emit(tape, "aten::add.Tensor", {x, number.argument(), 1});
}
/// `a += b`.
inline void add_in_place(AutogradTape& tape, TensorRef a, TensorRef b) {
  emit(tape, "aten::add_.Tensor", {a, b, 1});
}
inline TensorRef mul(AutogradTape& tape, TensorRef a, TensorRef b) {
  return emit(tape, "aten::mul.Tensor", {a, b});
}
inline TensorRef mul(AutogradTape& tape, TensorRef x, Number number) {
  return emit(tape, "aten::mul.Tensor", {x, number.argument()});
}

}  // namespace perfmodel
