#include "builders/emit/memory.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;

// What the op asks the types of its results with: the first number, also of a list of numbers.
const Argument* first_number(const Retargeter& rewrite, std::int32_t node) {
  for (const Argument& argument : rewrite.source().inputs(node)) {
    if (argument.kind == Kind::kInt || argument.kind == Kind::kDouble) return &argument;
    if (argument.kind != Kind::kList) continue;
    const auto elements = rewrite.source().elements(argument);
    if (!elements.empty() && elements[0].kind != Kind::kTensor) return elements.data();
  }
  return nullptr;
}

std::vector<const Argument*> tensors_of(const ExecutionGraph& graph,
                                        std::span<const Argument> arguments) {
  std::vector<const Argument*> found;
  for (const Argument& argument : arguments) {
    if (argument.kind != Kind::kList) continue;
    for (const Argument& element : graph.elements(argument)) {
      if (element.kind == Kind::kTensor) found.push_back(&element);
    }
  }
  return found;
}

// Lists with numbers that are tensors are walked one by one on a GPU too.
bool holds_numbers(const Retargeter& rewrite, std::int32_t node) {
  for (const Argument& argument : rewrite.source().inputs(node)) {
    if (argument.kind == Kind::kTensor) return true;
  }
  for (const Argument* tensor : tensors_of(rewrite.source(), rewrite.source().inputs(node))) {
    if (rewrite.source().tensors[tensor->index].rank == 0) return true;
  }
  return false;
}

// A CPU calls the op of each tensor; a GPU treats all of them in one kernel, once it knows that
// types stay, and makes results beforehand.
void foreach_op(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  if (holds_numbers(rewrite, node)) return;
  rewrite.leave_out_children(node);
  GraphBuilder& graph = rewrite.graph();
  const bool asks = rewrite.name(node) != "aten::_foreach_lerp_";
  const Argument* number = first_number(rewrite, node);
  const auto inputs = rewrite.source().inputs(node);
  if (asks && number != nullptr && !inputs.empty()) {
    for (const Argument* x : tensors_of(rewrite.source(), inputs.first(1))) {
      const TensorRef tensor = rewrite.tensor(*x);
      graph.leaf_op("aten::result_type.Scalar", {tensor, rewrite.value(*number)},
                    {scalar_type_code(graph.dtype(tensor))});
    }
  }
  for (const Argument* made : tensors_of(rewrite.source(), rewrite.source().outputs(node))) {
    const TensorRef tensor = rewrite.tensor(*made);
    allocate_strided(graph, tensor, contiguous_strides(graph.shape(tensor)));
  }
}

}  // namespace

std::span<const NamedRetargetRule> foreach_retarget_rules() {
  static constexpr NamedRetargetRule kRules[] = {
      {"foreach", foreach_op},
  };
  return kRules;
}

}  // namespace perfmodel
