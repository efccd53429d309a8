#include "tensor_places.hpp"

#include <algorithm>

#include "change_tensors.hpp"

namespace perfmodel {
namespace {

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

Tensor TensorPlaces::current(Tensor tensor) const {
  if (const auto by = by_.find(tensor.id); by != by_.end()) take_place(tensor, by->second);
  return tensor;
}

void TensorPlaces::apply(ExecutionGraph& made, const Node& node) {
  inputs_.clear();
  moved_.clear();
  change_tensors(made, node.inputs_begin, node.inputs_count, [&](Tensor& tensor) {
    inputs_.push_back(tensor.id);
    const auto by = by_.find(tensor.id);
    if (by == by_.end()) return;
    moved_.push_back({.storage = tensor.storage_id,
                      .to = by->second.storage_id,
                      .offset = by->second.offset - tensor.offset});
    take_place(tensor, by->second);
  });
  change_tensors(made, node.outputs_begin, node.outputs_count, [&](Tensor& tensor) {
    if (std::find(inputs_.begin(), inputs_.end(), tensor.id) == inputs_.end()) {
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
