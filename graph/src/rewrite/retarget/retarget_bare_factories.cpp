// Factories that a capture holds without the allocation and without the op that writes the new
// tensor.

#include "builders/emit/factory.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/views.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

Shape sizes(const CpuOp& op, std::size_t at) {
  Shape made;
  const auto inputs = op.inputs();
  if (at >= inputs.size() || inputs[at].kind != Argument::Kind::kList) return made;
  for (const Argument& size : op.source().elements(inputs[at])) made.push_back(size.integer);
  return made;
}

DType type_of_result(const CpuOp& op) { return op.output(0)->dtype; }

void fill_ones_like(const CpuOp& op) {
  op.replace([op](GraphBuilder& graph) { ones_like(graph, op.tensor(0)); });
}

void fill_zeros_like(const CpuOp& op) {
  op.refill([op](GraphBuilder& graph) {
    op.write_as([&](GraphBuilder&) { empty_like(graph, op.tensor(0), type_of_result(op)); });
    zero(graph, op.result(0));
  });
}

// full(size, number, ...)
void fill_full(const CpuOp& op) {
  op.refill([op](GraphBuilder& graph) {
    allocate(graph, op.result(0), from_python());
    fill(graph, op.result(0), op.argument(1));
  });
}

// scalar_tensor(number, ...)
void fill_scalar(const CpuOp& op) {
  op.refill([op](GraphBuilder& graph) {
    allocate(graph, op.result(0));
    fill(graph, op.result(0), op.argument(0));
  });
}

// select_backward(gradient, sizes, axis, index)
void fill_select_gradient(const CpuOp& op) {
  op.refill([op](GraphBuilder& graph) {
    op.write_as([&](GraphBuilder&) { zeros(graph, type_of_result(op), sizes(op, 1)); });
    const auto axis = static_cast<int>(op.integer(2));
    copy(graph, select(graph, op.result(0), axis, op.integer(3)), op.tensor(0));
  });
}

// arange(end, ...) calls arange(0, end, 1, out), which gives the output its size.
void fill_range(const CpuOp& op) {
  const auto inputs = op.inputs();
  const std::size_t last = inputs.empty() ? 0 : inputs.size() - 1;
  if (op.input(last)) {
    return op.refill(
        [op, last](GraphBuilder& graph) { resize_to(graph, op.tensor(last), op.result(0)); });
  }
  op.refill([op](GraphBuilder& graph) {
    op.write_as([&](GraphBuilder&) {
      const TensorRef range = op.result(0);
      const TensorRef unsized = python_empty(graph, type_of_result(op), {0});
      graph.begin_op("aten::arange.start_out", {0, graph.numel(range), 1, unsized});
      resize_to(graph, unsized, range);
      graph.end_op({range});
    });
  });
}

}  // namespace

const BareRules& bare_factory_rules() {
  static const BareRules kRules = {
      {"aten::ones_like", fill_ones_like}, {"aten::zeros_like", fill_zeros_like},
      {"aten::full", fill_full},           {"aten::scalar_tensor", fill_scalar},
      {"aten::arange", fill_range},        {"aten::select_backward", fill_select_gradient},
  };
  return kRules;
}

}  // namespace perfmodel
