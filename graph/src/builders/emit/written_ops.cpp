
#include "embedding_lookup.hpp"
#include "emitter.hpp"
#include "graph_reduction.hpp"
#include "graph_views.hpp"
#include "matmul.hpp"
#include "memory.hpp"
#include "pointwise.hpp"
#include "softmax.hpp"

namespace perfmodel {
namespace {

Number number_in(const Value& value) {
  const double* real = std::get_if<double>(&value.variant());
  return real ? Number(*real) : Number(static_cast<int>(std::get<std::int64_t>(value.variant())));
}

Shape inverse(const Shape& axes) {
  Shape back(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) back[axes[i]] = static_cast<std::int64_t>(i);
  return back;
}

// The gradient of a sum, for every element that was added: of all, or (gradient, x, dim, keepdim).
TensorRef spread(const WrittenCall& c) {
  const bool all = c.values.size() == 2;
  return expand_gradient(c.graph, c.tensor(0), c.shape_of(1), all ? Shape{} : c.shape(2),
                         !all && c.flag(3));
}

// Elements of x in the shape of the index.
TensorRef gathered(const WrittenCall& c) {
  const TensorRef made = c.graph.new_tensor(c.graph.dtype(c.tensor(0)), c.shape_of(2));
  c.graph.leaf_op("aten::gather", c.values, {made}, c.sequence);
  return made;
}

}  // namespace

Shape WrittenCall::shape(std::size_t i) const {
  Shape shape;
  for (const Value& size : get<Value::List>(i))
    shape.push_back(std::get<std::int64_t>(size.variant()));
  return shape;
}

// Rows cannot say these: strides, differences between devices and versions, values of arguments.
// clang-format off
const WrittenOps& written_ops() {
  static const WrittenOps kTable = {
    {"aten::view", [](const WrittenCall& c) -> Value { return view(c.graph, c.tensor(0), c.shape(1), c.sequence); }},
    {"aten::_unsafe_view", [](const WrittenCall& c) -> Value { return unsafe_view(c.graph, c.tensor(0), c.shape(1), c.sequence); }},
    {"aten::reshape", [](const WrittenCall& c) -> Value { return reshape(c.graph, c.tensor(0), c.shape(1), c.sequence); }},
    {"aten::clone", [](const WrittenCall& c) -> Value { return clone(c.graph, c.tensor(0), c.sequence); }},
    {"aten::t", [](const WrittenCall& c) -> Value { return t(c.graph, c.tensor(0), c.sequence); }},
    {"aten::transpose.int", [](const WrittenCall& c) -> Value { return transpose(c.graph, c.tensor(0), c.dim(1), c.dim(2), c.sequence); }},
    {"aten::permute", [](const WrittenCall& c) -> Value { return permute(c.graph, c.tensor(0), c.shape(1), c.sequence); }},
    {"aten::unsqueeze", [](const WrittenCall& c) -> Value { return unsqueeze(c.graph, c.tensor(0), c.dim(1), c.sequence); }},
    {"aten::squeeze.dim", [](const WrittenCall& c) -> Value { return squeeze(c.graph, c.tensor(0), c.dim(1), c.sequence); }},
    {"aten::expand", [](const WrittenCall& c) -> Value { return expand(c.graph, c.tensor(0), c.shape(1), c.sequence); }},
    {"aten::slice.Tensor", [](const WrittenCall& c) -> Value { return slice(c.graph, c.tensor(0), c.dim(1), c.integer(2), c.integer(3), c.sequence); }},
    {"aten::select.int", [](const WrittenCall& c) -> Value { return select(c.graph, c.tensor(0), c.dim(1), c.integer(2), c.sequence); }},
    {"aten::sum", [](const WrittenCall& c) -> Value { return sum(c.graph, c.tensor(0), c.sequence); }},
    {"aten::sum.dim_IntList", [](const WrittenCall& c) -> Value { return sum(c.graph, c.tensor(0), c.shape(1), c.flag(2), c.sequence); }},
    {"aten::mean", [](const WrittenCall& c) -> Value { return mean(c.graph, c.tensor(0), c.sequence); }},
    {"aten::mean.dim", [](const WrittenCall& c) -> Value { return mean(c.graph, c.tensor(0), c.shape(1), c.flag(2), c.sequence); }},
    {"aten::mm", [](const WrittenCall& c) -> Value { return mm(c.graph, c.tensor(0), c.tensor(1), c.sequence); }},
    {"aten::bmm", [](const WrittenCall& c) -> Value { return bmm(c.graph, c.tensor(0), c.tensor(1), c.sequence); }},
    {"aten::addmm", [](const WrittenCall& c) -> Value { return addmm(c.graph, c.tensor(0), c.tensor(1), c.tensor(2), c.sequence); }},
    {"aten::pow.Tensor_Scalar", [](const WrittenCall& c) -> Value { return pow(c.graph, c.tensor(0), number_in(c.values[1]), c.sequence); }},
    {"aten::where.self", [](const WrittenCall& c) -> Value { return where(c.graph, c.tensor(0), c.tensor(1), c.tensor(2), c.sequence); }},
    {"aten::gather", [](const WrittenCall& c) -> Value { return gathered(c); }},
    {"aten::index_select", [](const WrittenCall& c) -> Value { return index_select(c.graph, c.tensor(0), c.tensor(2), c.sequence); }},
    {"aten::_softmax_backward_data", [](const WrittenCall& c) -> Value { return softmax_backward(c.graph, c.tensor(0), c.tensor(1), c.dim(2)); }},
    {"axis", [](const WrittenCall& c) -> Value { return static_cast<std::int64_t>(axis_of(c.graph, c.tensor(0), c.dim(1))); }},
    {"divide", [](const WrittenCall& c) -> Value { return divide(c.graph, c.tensor(0), c.integer(1)); }},
    {"inverse", [](const WrittenCall& c) -> Value { return inverse(c.shape(0)); }},
    {"left_gradient", [](const WrittenCall& c) -> Value { return left_gradient(c.graph, c.tensor(0), c.tensor(1), c.tensor(2)); }},
    {"less_one", [](const WrittenCall& c) -> Value { return number_in(c.values[0]).value - 1; }},
    {"new_zeros", [](const WrittenCall& c) -> Value { return new_zeros(c.graph, c.tensor(0), c.shape(1)); }},
    {"numel", [](const WrittenCall& c) -> Value { return c.graph.numel(c.tensor(0)); }},
    {"real", [](const WrittenCall& c) -> Value { return number_in(c.values[0]).value; }},
    {"reduced", [](const WrittenCall& c) -> Value { return reduced_count(c.shape_of(0), c.shape(1)); }},
    {"right_gradient", [](const WrittenCall& c) -> Value { return right_gradient(c.graph, c.tensor(0), c.tensor(1), c.tensor(2)); }},
    {"same_dtype", [](const WrittenCall& c) -> Value { to_same_dtype(c.graph, c.tensor(0)); return kNone; }},
    {"scalar_tensor", [](const WrittenCall& c) -> Value { return scalar_tensor(c.graph, number_in(c.values[0]), c.graph.dtype(c.tensor(1))); }},
    {"sizes", [](const WrittenCall& c) -> Value { return c.shape_of(0); }},
    {"spread", [](const WrittenCall& c) -> Value { return spread(c); }},
    {"sum_to", [](const WrittenCall& c) -> Value { return sum_to(c.graph, c.tensor(0), c.shape(1)); }},
    {"type", [](const WrittenCall& c) -> Value { return scalar_type_code(c.graph.dtype(c.tensor(0))); }},
    {"zeros", [](const WrittenCall& c) -> Value { return zeros(c.graph, c.graph.dtype(c.tensor(0)), c.shape(1)); }},
  };
  return kTable;
}
// clang-format on

}  // namespace perfmodel
