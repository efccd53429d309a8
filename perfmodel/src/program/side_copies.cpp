#include "side_copies.hpp"

namespace perfmodel {

bool SideCopies::note(const LoweredCall& copy) {
  const Node& node = graph_.node(copy.node);
  bool noted = false;
  const auto note = [&](const Tensor& tensor) {
    if (!tensor.on_gpu() || tensor.storage_id == 0) return;
    copies_.erase(tensor.storage_id);
    if (copy.stream() == 0) return;
    noted = true;
    copies_[tensor.storage_id] = {copy.node, copy.stream()};
  };
  for_each_tensor(graph_, graph_.outputs(node), note);
  const auto inputs = graph_.inputs(node);
  if (!inputs.empty()) for_each_tensor(graph_, inputs.first(1), note);  // copy_(self, source)
  return noted;
}

bool SideCopies::note_aside(std::int32_t node, std::int32_t stream) {
  const Node& copy = graph_.node(node);
  for_each_tensor(graph_, graph_.inputs(copy), [&](const Tensor& tensor) {
    if (tensor.on_gpu()) leaving_[tensor.storage_id] = node;
  });
  for_each_tensor(graph_, graph_.outputs(copy), [&](const Tensor& tensor) {
    if (tensor.on_gpu()) copies_[tensor.storage_id] = {node, stream};
  });
  return true;
}

std::vector<std::int32_t> SideCopies::take_released(std::int32_t node) {
  std::vector<std::int32_t> awaited;
  if (leaving_.empty()) return awaited;
  const Node& release = graph_.node(node);
  for_each_tensor(graph_, graph_.inputs(release), [&](const Tensor& tensor) {
    const auto copy = leaving_.find(tensor.storage_id);
    if (copy == leaving_.end()) return;
    awaited.push_back(copy->second);
    leaving_.erase(copy);
  });
  return awaited;
}

std::vector<std::int32_t> SideCopies::take_awaited(const LoweredCall& reader) {
  std::vector<std::int32_t> awaited;
  if (copies_.empty()) return awaited;
  const Node& node = graph_.node(reader.node);
  for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
    const auto copy = copies_.find(tensor.storage_id);
    if (copy == copies_.end() || copy->second.node == reader.node ||
        copy->second.stream == reader.stream()) {
      return;
    }
    awaited.push_back(copy->second.node);
    copies_.erase(copy);
  });
  return awaited;
}

}  // namespace perfmodel
