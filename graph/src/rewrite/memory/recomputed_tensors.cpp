#include "recomputed_tensors.hpp"

#include <utility>

#include "base/contains.hpp"
#include "step/backward_pass.hpp"

namespace perfmodel {

// The builder hands ids to tensors alone; two with each.
std::int64_t FreshIds::next(GraphBuilder& builder) {
  if (spare_ != 0) return std::exchange(spare_, 0);
  const TensorRef tensor = builder.new_tensor(DType::kUnknown, GraphBuilder::cpu(), {});
  const std::uint32_t argument = builder.append({tensor}).first;
  const ExecutionGraph& graph = builder.graph_being_made();
  const Tensor& made = graph.tensors[graph.arguments[argument].index];
  spare_ = made.storage_id;
  return made.id;
}

void RecomputedTensors::stand_in(const Tensor& input, const Tensor& by) {
  tensors_.now[input.id] = by.id;
  places_.replace(input.id, by);
}

// An output is new unless the op takes it (in place, or handed through), or one around it makes it.
void RecomputedTensors::name(std::int64_t& id, Names& names, bool is_output) {
  if (id == 0) return;
  const std::int64_t old = id;
  if (is_output && !contains(names.taken, old) && !contains(names.being_made, old)) {
    names.now[old] = ids_.next(builder_);
    names.being_made.push_back(old);
  }
  if (const auto at = names.now.find(old); at != names.now.end()) id = at->second;
}

template <class Visit>
void RecomputedTensors::visit(std::uint32_t begin, std::uint32_t count, Visit&& visit_one) {
  for (std::uint32_t i = begin; i < begin + count; ++i) {
    const Argument argument = builder_.graph_being_made().arguments[i];
    if (argument.kind == Argument::Kind::kTensor) {
      Tensor tensor = builder_.graph_being_made().tensors[argument.index];
      if (is_undefined(tensor)) continue;
      visit_one(tensor);
      builder_.graph_being_made().tensors[argument.index] = tensor;  // new ids may move the pool
    } else if (argument.kind == Argument::Kind::kList) {
      visit(argument.index, argument.count, visit_one);
    }
  }
}

void RecomputedTensors::open(const Node& node) {
  open_.emplace_back(tensors_.being_made.size(), storages_.being_made.size());
  tensors_.taken.clear();
  storages_.taken.clear();
  visit(node.inputs_begin, node.inputs_count, [&](Tensor& tensor) {
    tensors_.taken.push_back(tensor.id);
    storages_.taken.push_back(tensor.storage_id);
    name(tensor.id, tensors_, false);
    name(tensor.storage_id, storages_, false);
  });
  visit(node.outputs_begin, node.outputs_count, [&](Tensor& tensor) {
    const std::int64_t old = tensor.id;
    name(tensor.id, tensors_, true);
    name(tensor.storage_id, storages_, true);
    if (tensor.id != old) places_.replace(old, tensor);
  });
}

void RecomputedTensors::close() {
  tensors_.being_made.resize(open_.back().first);
  storages_.being_made.resize(open_.back().second);
  open_.pop_back();
}

}  // namespace perfmodel
