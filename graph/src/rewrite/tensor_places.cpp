#include "tensor_places.hpp"

#include <algorithm>

#include "change_tensors.hpp"

namespace perfmodel {

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
  taken_.clear();
  change_tensors(made, node.inputs_begin, node.inputs_count, [&](Tensor& tensor) {
    taken_.push_back(tensor);
    tensor = current(tensor);
  });
  change_tensors(made, node.outputs_begin, node.outputs_count, [&](Tensor& tensor) {
    const bool is_taken = std::ranges::find(taken_, tensor.id, &Tensor::id) != taken_.end();
    if (is_taken) {
      tensor = current(tensor);
      return;
    }
    const auto base = std::ranges::find_if(taken_, [&](const Tensor& one) {
      return one.storage_id != 0 && one.storage_id == tensor.storage_id && by_.contains(one.id);
    });
    if (base == taken_.end()) return;
    const Tensor& by = by_.at(base->id);
    tensor.storage_id = by.storage_id;
    tensor.offset += by.offset - base->offset;
    replace(tensor.id, tensor);
  });
}

void TensorPlaces::end_scope() {
  for (auto at = before_.rbegin(); at != before_.rend(); ++at) {
    if (at->second) {
      by_[at->first] = *at->second;
    } else {
      by_.erase(at->first);
    }
  }
  before_.clear();
  scoped_ = false;
}

}  // namespace perfmodel
