#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "autograd_tape.hpp"

namespace perfmodel {

/// The tensor for the result of a pointwise op on `inputs`; no op.
TensorRef pointwise_result(GraphBuilder& graph, const std::vector<TensorRef>& inputs, DType dtype);

/// A call of an op or of a helper that is written in C++: arguments by their places.
struct WrittenCall {
  GraphBuilder& graph;
  const std::vector<Value>& values;
  std::int64_t sequence = -1;

  template <class Kind>
  const Kind& get(std::size_t i) const {
    return std::get<Kind>(values[i].variant());
  }
  TensorRef tensor(std::size_t i) const { return get<TensorRef>(i); }
  std::int64_t integer(std::size_t i) const { return get<std::int64_t>(i); }
  int dim(std::size_t i) const { return static_cast<int>(integer(i)); }
  bool flag(std::size_t i) const { return get<bool>(i); }
  Shape shape(std::size_t i) const;
  const Shape& shape_of(std::size_t i) const { return graph.shape(tensor(i)); }
};
using WrittenOps = std::unordered_map<std::string_view, Value (*)(const WrittenCall&)>;
/// By names with overload, and the helpers that rows may call.
const WrittenOps& written_ops();

/// Writes an op by its name with overload and the arguments of its schema, with the calls that its
/// row in ops/rows.txt says it makes; returns its result. A number in the place of a tensor is
/// wrapped into one, as PyTorch wraps the number of `x + 3`. `sequence`: autograd's number.
TensorRef emit(GraphBuilder& graph, std::string_view op, std::vector<Value> arguments,
               std::int64_t sequence = -1);

/// The same, recorded for the backward pass with the derivative in its row.
TensorRef emit(AutogradTape& tape, std::string_view op, std::vector<Value> arguments);

}  // namespace perfmodel
