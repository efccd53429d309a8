#pragma once

#include "autograd_tape.hpp"

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

/// The tensor for the result of a pointwise op on `inputs`; no op.
TensorRef pointwise_result(GraphBuilder& graph, const std::vector<TensorRef>& inputs, DType dtype);

// Without gradient; `op` is the name with overload.
TensorRef unary(GraphBuilder& graph, const char* op, TensorRef x, std::int64_t sequence = -1);
TensorRef binary(GraphBuilder& graph, const char* op, TensorRef a, TensorRef b,
                 std::int64_t sequence = -1);
TensorRef binary(GraphBuilder& graph, const char* op, TensorRef x, Number number,
                 std::int64_t sequence = -1);
TensorRef add(GraphBuilder& graph, TensorRef a, TensorRef b, std::int64_t sequence = -1);
TensorRef neg(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
TensorRef sigmoid(GraphBuilder& graph, TensorRef x, std::int64_t sequence = -1);
/// `number - x`.
TensorRef subtract_from(GraphBuilder& graph, Number number, TensorRef x,
                        std::int64_t sequence = -1);
/// `torch.scalar_tensor(number)`
TensorRef scalar_tensor(GraphBuilder& graph, Number number, DType dtype);
/// x where `mask` holds, else the number.
TensorRef where_else(GraphBuilder& graph, TensorRef mask, TensorRef x, int number);
TensorRef masked_fill(GraphBuilder& graph, TensorRef x, TensorRef mask, Number value,
                      std::int64_t sequence = -1);

/// `x.to(dtype)`; `x` itself, without an op, if it has that type.
TensorRef cast(AutogradTape& tape, TensorRef x, DType dtype);
TensorRef add(AutogradTape& tape, TensorRef a, TensorRef b);
TensorRef add(AutogradTape& tape, TensorRef x, Number number);
/// `a += b`.
void add_in_place(AutogradTape& tape, TensorRef a, TensorRef b);
TensorRef sub(AutogradTape& tape, TensorRef a, TensorRef b);
/// `number - x`.
TensorRef subtract_from(AutogradTape& tape, Number number, TensorRef x);
TensorRef mul(AutogradTape& tape, TensorRef a, TensorRef b);
TensorRef mul(AutogradTape& tape, TensorRef x, Number number);
/// The divisor has no gradient.
TensorRef div(AutogradTape& tape, TensorRef x, TensorRef divisor);
TensorRef div(AutogradTape& tape, TensorRef x, Number number);
TensorRef pow(AutogradTape& tape, TensorRef x, Number exponent);
TensorRef pow(GraphBuilder& graph, TensorRef x, Number exponent, std::int64_t sequence = -1);
TensorRef neg(AutogradTape& tape, TensorRef x);
TensorRef rsqrt(AutogradTape& tape, TensorRef x);
/// torch.max(a, b) for a `b` without gradient.
TensorRef maximum(AutogradTape& tape, TensorRef a, TensorRef b);
/// `other` has no gradient.
TensorRef where(AutogradTape& tape, TensorRef mask, TensorRef x, TensorRef other);
TensorRef masked_fill(AutogradTape& tape, TensorRef x, TensorRef mask, Number value);

}  // namespace perfmodel
