#include "foreach.hpp"

#include <functional>
#include <utility>

#include "memory.hpp"
#include "update.hpp"

namespace perfmodel {
namespace {

bool on_gpu(GraphBuilder& graph, const TensorList& x) {
  return !x.empty() && graph.device(x.front()).kind == Device::Kind::kGpu;
}

// Whether an op over lists can treat them at once depends on the type of `tensor op number`.
void result_types(GraphBuilder& graph, const TensorList& x, const Value& number) {
  for (TensorRef tensor : x) {
    graph.leaf_op("aten::result_type.Scalar", {tensor, number},
                  {scalar_type_code(graph.dtype(tensor))});
  }
}

TensorList empty_strided_like(GraphBuilder& graph, const TensorList& x) {
  TensorList made;
  for (TensorRef tensor : x) {
    made.push_back(like(graph, tensor));
    allocate_strided(graph, made.back(), graph.strides(made.back()));
  }
  return made;
}

Value per_tensor(const TensorList& x, double number) {
  return Value::List(x.size(), Value(number));
}

// `number`: with it the types of the results are asked; none if they are not asked.
void in_place(GraphBuilder& graph, const char* op, const TensorList& x, std::vector<Value> others,
              const Value& number, const std::function<void(std::size_t)>& each) {
  others.insert(others.begin(), Value(x));
  graph.begin_op(op, std::move(others));
  if (!on_gpu(graph, x)) {
    for (std::size_t i = 0; i < x.size(); ++i) each(i);
  } else if (!std::holds_alternative<Value::None>(number.variant())) {
    result_types(graph, x, number);
  }
  graph.end_op();
}

TensorList made_anew(GraphBuilder& graph, const char* op, const TensorList& x,
                     std::vector<Value> others, const Value& number, bool at_once,
                     const std::function<TensorRef(std::size_t)>& each) {
  TensorList made;
  others.insert(others.begin(), Value(x));
  graph.begin_op(op, std::move(others));
  if (on_gpu(graph, x) && at_once) {
    if (!std::holds_alternative<Value::None>(number.variant())) result_types(graph, x, number);
    made = empty_strided_like(graph, x);
  } else {
    for (std::size_t i = 0; i < x.size(); ++i) made.push_back(each(i));
  }
  return graph.end_with(made);
}

}  // namespace

void foreach_add_number_(GraphBuilder& graph, const TensorList& x, Value number) {
  in_place(graph, "aten::_foreach_add_.Scalar", x, {number}, number,
           [&](std::size_t i) { add_scalar_(graph, x[i], number); });
}

TensorList foreach_add_number(GraphBuilder& graph, const TensorList& x, Value number) {
  return made_anew(graph, "aten::_foreach_add.Scalar", x, {number}, number, true,
                   [&](std::size_t i) { return add_scalar(graph, x[i], number); });
}

void foreach_mul_number_(GraphBuilder& graph, const TensorList& x, double number) {
  in_place(graph, "aten::_foreach_mul_.Scalar", x, {number}, number,
           [&](std::size_t i) { mul_scalar_(graph, x[i], number); });
}

void foreach_div_numbers_(GraphBuilder& graph, const TensorList& x, double number) {
  in_place(graph, "aten::_foreach_div_.ScalarList", x, {per_tensor(x, number)}, number,
           [&](std::size_t i) { div_scalar_(graph, x[i], number); });
}

TensorList foreach_mul_numbers(GraphBuilder& graph, const TensorList& x, double number) {
  return made_anew(graph, "aten::_foreach_mul.ScalarList", x, {per_tensor(x, number)}, number, true,
                   [&](std::size_t i) { return mul_scalar(graph, x[i], number); });
}

void foreach_add_(GraphBuilder& graph, const TensorList& x, const TensorList& y, Value alpha) {
  in_place(graph, "aten::_foreach_add_.List", x, {y, alpha}, alpha,
           [&](std::size_t i) { add_scaled_(graph, x[i], y[i], alpha); });
}

TensorList foreach_add(GraphBuilder& graph, const TensorList& x, const TensorList& y, Value alpha) {
  return made_anew(graph, "aten::_foreach_add.List", x, {y, alpha}, alpha, true,
                   [&](std::size_t i) { return add_scaled(graph, x[i], y[i], alpha); });
}

void foreach_add_tensor_(GraphBuilder& graph, const TensorList& x, TensorRef number) {
  graph.begin_op("aten::_foreach_add_.Tensor", {x, number, 1.0});
  for (TensorRef tensor : x) add_scaled_(graph, tensor, number, 1.0);
  graph.end_op();
}

TensorList foreach_mul_cpu_numbers(GraphBuilder& graph, const TensorList& x, const TensorList& y) {
  return made_anew(graph, "aten::_foreach_mul.List", x, {y}, kNone, false,
                   [&](std::size_t i) { return mul(graph, x[i], y[i]); });
}

TensorList foreach_div(GraphBuilder& graph, const TensorList& x, const TensorList& y) {
  return made_anew(graph, "aten::_foreach_div.List", x, {y}, kNone, true,
                   [&](std::size_t i) { return div(graph, x[i], y[i]); });
}

void foreach_lerp_(GraphBuilder& graph, const TensorList& x, const TensorList& y, double weight) {
  in_place(graph, "aten::_foreach_lerp_.Scalar", x, {y, weight}, kNone,
           [&](std::size_t i) { lerp_(graph, x[i], y[i], weight); });
}

void foreach_addcmul_(GraphBuilder& graph, const TensorList& x, const TensorList& a,
                      const TensorList& b, Value value) {
  in_place(graph, "aten::_foreach_addcmul_.Scalar", x, {a, b, value}, value,
           [&](std::size_t i) { addcmul_(graph, x[i], a[i], b[i], value); });
}

void foreach_addcdiv_(GraphBuilder& graph, const TensorList& x, const TensorList& a,
                      const TensorList& b, Value value) {
  in_place(graph, "aten::_foreach_addcdiv_.Scalar", x, {a, b, value}, value,
           [&](std::size_t i) { addcdiv_(graph, x[i], a[i], b[i], value); });
}

void foreach_addcdiv_numbers_(GraphBuilder& graph, const TensorList& x, const TensorList& a,
                              const TensorList& b, double number) {
  in_place(graph, "aten::_foreach_addcdiv_.ScalarList", x, {a, b, per_tensor(x, number)}, number,
           [&](std::size_t i) { addcdiv_(graph, x[i], a[i], b[i], number); });
}

TensorList foreach_sqrt(GraphBuilder& graph, const TensorList& x) {
  return made_anew(graph, "aten::_foreach_sqrt", x, {}, kNone, true,
                   [&](std::size_t i) { return sqrt(graph, x[i]); });
}

void foreach_zero_(GraphBuilder& graph, const TensorList& x, std::int64_t sequence) {
  graph.begin_op("aten::_foreach_zero_", {x}, sequence);
  if (!on_gpu(graph, x)) {
    for (TensorRef tensor : x) zero(graph, tensor);
  }
  graph.end_op();
}

}  // namespace perfmodel
