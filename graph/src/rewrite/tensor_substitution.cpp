#include "tensor_substitution.hpp"

namespace perfmodel {

void TensorSubstitution::apply(ExecutionGraph& made, const Node& node) {
  if (by_.empty()) return;
  const bool read = apply(made, node.inputs_begin, node.inputs_count);
  if (read) {  // may come back as an output
    apply(made, node.outputs_begin, node.outputs_count);
    return;
  }
  for_each_tensor(made, made.outputs(node), [this](const Tensor& tensor) { by_.erase(tensor.id); });
}

bool TensorSubstitution::apply(ExecutionGraph& made, std::uint32_t begin, std::uint32_t count) {
  bool found = false;
  for (std::uint32_t i = begin; i < begin + count; ++i) {
    const Argument& argument = made.arguments[i];
    if (argument.kind == Argument::Kind::kList) {
      found |= apply(made, argument.index, argument.count);
    } else if (argument.kind == Argument::Kind::kTensor) {
      Tensor& tensor = made.tensors[argument.index];
      const auto by = by_.find(tensor.id);
      if (by == by_.end()) continue;
      tensor.id = by->second.id;
      tensor.storage_id = by->second.storage_id;
      tensor.offset = by->second.offset;
      found = true;
    }
  }
  return found;
}

}  // namespace perfmodel
