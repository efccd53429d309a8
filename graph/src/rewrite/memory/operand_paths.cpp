#include "operand_paths.hpp"

#include <optional>
#include <unordered_map>
#include <utility>

#include "ops/catalogue.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

class PathFinder {
 public:
  PathFinder(const StepView& step, const std::vector<std::int32_t>& origins)
      : graph_(step.graph()), carried_(step.tensors()), paths_(origins.size()) {
    for (std::size_t k = 0; k < origins.size(); ++k) origins_[origins[k]] = k;
  }

  std::vector<std::vector<OperandPath>> find(const BackwardPass& pass) {
    const auto count = static_cast<std::int32_t>(graph_.nodes.size());
    for (std::int32_t i = 0; i < count && !pass.in_backward[i];) {
      i = follow(i);
    }
    return std::move(paths_);
  }

 private:
  struct Carried {
    std::size_t origin = 0;
    std::vector<std::int32_t> views;
  };

  // Gives the node to go on with.
  std::int32_t follow(std::int32_t index) {
    const Node& node = graph_.node(index);
    if (const auto origin = origins_.find(index); origin != origins_.end()) {
      give(node, {.origin = origin->second, .views = {}});
      return last_below(graph_, index) + 1;
    }
    const Op* op = find_op(graph_.name(node));
    if (node.is_label || !op || op->kind == OpKind::kAllocation) return index + 1;
    const Carried* carried = nullptr;
    for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
      if (!carried && carried_[tensor]) carried = &*carried_[tensor];
    });
    if (carried && (op->kind == OpKind::kView || is_conversion(op->name))) {
      Carried behind = *carried;
      behind.views.push_back(index);
      give(node, std::move(behind));
      return last_below(graph_, index) + 1;
    }
    if (carried && op->kind == OpKind::kProduct && node.seq_id >= 0) {
      paths_[carried->origin].push_back({.product = index, .views = carried->views});
    }
    return index + 1;
  }

  void give(const Node& node, const Carried& carried) {
    for_each_tensor(graph_, graph_.outputs(node), [&](const Tensor& tensor) {
      if (!takes(node, tensor)) carried_[tensor] = carried;
    });
  }

  bool takes(const Node& node, const Tensor& output) const {
    bool taken = false;
    for_each_tensor(graph_, graph_.inputs(node),
                    [&](const Tensor& input) { taken |= input.id == output.id; });
    return taken;
  }

  const ExecutionGraph& graph_;
  std::unordered_map<std::int32_t, std::size_t> origins_;  // node -> which
  FactsOfValues<std::optional<Carried>> carried_;
  std::vector<std::vector<OperandPath>> paths_;
};

}  // namespace

std::vector<std::vector<OperandPath>> operand_paths(const StepView& step,
                                                    const std::vector<std::int32_t>& origins) {
  return PathFinder(step, origins).find(step.backward());
}

}  // namespace perfmodel
