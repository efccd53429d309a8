#include "tensor_places.hpp"

#include <algorithm>

namespace perfmodel {
namespace {

// With the tensors of lists, which may be changed.
template <class Visit>
void for_each_entry(ExecutionGraph& graph, std::uint32_t begin, std::uint32_t count,
                    Visit&& visit) {
  for (std::uint32_t i = begin; i < begin + count; ++i) {
    const Argument& argument = graph.arguments[i];
    if (argument.kind == Argument::Kind::kTensor) {
      visit(graph.tensors[argument.index]);
    } else if (argument.kind == Argument::Kind::kList) {
      for_each_entry(graph, argument.index, argument.count, visit);
    }
  }
}

void take_place(Tensor& tensor, const Tensor& by) {
  tensor.id = by.id;
  tensor.storage_id = by.storage_id;
  tensor.offset = by.offset;
}

}  // namespace

void TensorPlaces::replace(std::int64_t id, const Tensor& by) {
  const auto [at, is_new] = by_.try_emplace(id, by);
  if (scoped_) {
    before_.emplace_back(id, is_new ? std::optional<Tensor>() : std::optional<Tensor>(at->second));
  }
  at->second = by;
}

void TensorPlaces::replace_forward(std::int64_t id, const Tensor& by) {
  if (!written_.contains(id)) replace(id, by);
}

Tensor TensorPlaces::current(Tensor tensor) const {
  if (const auto by = by_.find(tensor.id); by != by_.end()) take_place(tensor, by->second);
  return tensor;
}

void TensorPlaces::apply(ExecutionGraph& made, const Node& node) {
  inputs_.clear();
  moved_.clear();
  for_each_entry(made, node.inputs_begin, node.inputs_count, [&](Tensor& tensor) {
    inputs_.push_back(tensor.id);
    const auto by = by_.find(tensor.id);
    if (by == by_.end()) return;
    moved_.push_back({.storage = tensor.storage_id,
                      .to = by->second.storage_id,
                      .offset = by->second.offset - tensor.offset});
    take_place(tensor, by->second);
  });
  for_each_entry(made, node.outputs_begin, node.outputs_count, [&](Tensor& tensor) {
    if (std::find(inputs_.begin(), inputs_.end(), tensor.id) == inputs_.end()) {
      by_.erase(tensor.id);
      written_.insert(tensor.id);
      const auto moved = std::find_if(moved_.begin(), moved_.end(), [&](const Moved& one) {
        return one.storage != 0 && one.storage == tensor.storage_id;
      });
      if (moved == moved_.end()) return;
      tensor.storage_id = moved->to;
      tensor.offset += moved->offset;
      replace(tensor.id, tensor);
    } else if (const auto by = by_.find(tensor.id); by != by_.end()) {
      take_place(tensor, by->second);
    }
  });
}

void TensorPlaces::end_scope() {
  for (auto at = before_.rbegin(); at != before_.rend(); ++at) {
    const auto now = by_.find(at->first);
    if (now == by_.end()) continue;  // another tensor has the id
    if (at->second) {
      now->second = *at->second;
    } else {
      by_.erase(now);
    }
  }
  before_.clear();
  scoped_ = false;
}

}  // namespace perfmodel
