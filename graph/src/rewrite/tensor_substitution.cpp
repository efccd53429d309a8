#include "tensor_substitution.hpp"

#include "change_tensors.hpp"

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
  change_tensors(made, begin, count, [&](Tensor& tensor) {
    const auto by = by_.find(tensor.id);
    if (by == by_.end()) return;
    tensor.id = by->second.id;
    tensor.storage_id = by->second.storage_id;
    tensor.offset = by->second.offset;
    found = true;
  });
  return found;
}

}  // namespace perfmodel
