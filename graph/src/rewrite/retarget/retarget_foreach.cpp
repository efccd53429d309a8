#include <algorithm>

#include "builders/emit/memory.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;

// Finds the number that decides the types of the op's results: the first one, also in a list.
const Argument* first_number(const ExecutionGraph& graph, std::int32_t node) {
  for (const Argument& argument : graph.inputs(node)) {
    if (argument.kind == Kind::kInt || argument.kind == Kind::kDouble) return &argument;
    if (argument.kind != Kind::kList) continue;
    const auto elements = graph.elements(argument);
    if (!elements.empty() && elements[0].kind != Kind::kTensor) return elements.data();
  }
  return nullptr;
}

std::vector<Argument> tensors_of_lists(const ExecutionGraph& graph,
                                       std::span<const Argument> arguments) {
  std::vector<Argument> found;
  for (const Argument& argument : arguments) {
    if (argument.kind != Kind::kList) continue;
    std::ranges::copy_if(graph.elements(argument), std::back_inserter(found),
                         [](const Argument& element) { return element.kind == Kind::kTensor; });
  }
  return found;
}

// Lists with numbers that are tensors are walked one by one on a GPU too.
bool holds_numbers(const ExecutionGraph& graph, std::int32_t node) {
  const auto inputs = graph.inputs(node);
  const auto is_number = [&](const Argument& tensor) {
    return graph.tensors[tensor.index].rank == 0;
  };
  return std::ranges::any_of(inputs, [](const Argument& a) { return a.kind == Kind::kTensor; }) ||
         std::ranges::any_of(tensors_of_lists(graph, inputs), is_number);
}

}  // namespace

// A CPU calls the op of each tensor; a GPU treats all of them in one kernel, once it knows that
// types stay, and makes results beforehand.
void retarget_foreach(const CpuOp& op) {
  if (holds_numbers(op.source(), op.node())) return;
  op.refill([op](GraphBuilder& graph) {
    const ExecutionGraph& source = op.source();
    const auto inputs = op.inputs();
    const Argument* number =
        op.name() == "aten::_foreach_lerp_" ? nullptr : first_number(source, op.node());
    if (number != nullptr) {
      for (const Argument& x : tensors_of_lists(source, inputs.first(1))) {
        const TensorRef tensor = op.tensor(x);
        graph.leaf_op("aten::result_type.Scalar", {tensor, op.value(*number)},
                      {scalar_type_code(graph.dtype(tensor))});
      }
    }
    for (const Argument& made : tensors_of_lists(source, source.outputs(op.node()))) {
      const TensorRef tensor = op.tensor(made);
      allocate_strided(graph, tensor, contiguous_strides(graph.shape(tensor)));
    }
  });
}

}  // namespace perfmodel
