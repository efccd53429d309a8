#include "kept_storages.hpp"

#include <algorithm>

#include "base/contains.hpp"
#include "rewrite/tree_walk.hpp"

namespace perfmodel {

KeptStorages::KeptStorages(ExecutionGraph& graph) : graph_(graph) {
  if (graph.built) return;
  for (const Tensor& tensor : graph.tensors) {
    last_id_ = std::max({last_id_, tensor.id, tensor.storage_id});
  }
  for (const Node& node : graph.nodes) last_id_ = std::max(last_id_, node.id);
  note_definitions();
}

// Of nested nodes the outermost one counts.
void KeptStorages::note_definitions() {
  const auto note = [&](std::int32_t index, std::int64_t Tensor::*id, Definitions& definitions) {
    const Node& node = graph_.node(index);
    std::vector<std::int64_t> taken;
    for_each_tensor(graph_, graph_.inputs(node),
                    [&](const Tensor& tensor) { taken.push_back(tensor.*id); });
    for_each_tensor(graph_, graph_.outputs(node), [&](const Tensor& tensor) {
      if (tensor.*id == 0 || contains(taken, tensor.*id)) return;
      std::vector<std::int32_t>& of_id = definitions[tensor.*id];
      if (!of_id.empty() && last_below(graph_, of_id.back()) >= index) return;
      of_id.push_back(index);
    });
  };
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
    note(i, &Tensor::id, tensors_);
    note(i, &Tensor::storage_id, storages_);
  }
}

void KeptStorages::keep(std::uint32_t entry, std::int32_t from, std::int32_t until) {
  if (graph_.built) return;
  const Tensor kept = graph_.tensors[entry];
  rename(&Tensor::id, tensors_, kept.id, from, until);
  rename(&Tensor::storage_id, storages_, kept.storage_id, from, until);
}

// From where it was made to where the id is given away.
void KeptStorages::rename(std::int64_t Tensor::*id, const Definitions& definitions,
                          std::int64_t old, std::int32_t from, std::int32_t until) {
  const auto at = definitions.find(old);
  if (at == definitions.end()) return;
  const std::vector<std::int32_t>& nodes = at->second;
  const auto behind = std::upper_bound(nodes.begin(), nodes.end(), from);
  if (behind == nodes.end() || *behind >= until) return;
  const std::int32_t begin = behind == nodes.begin() ? 0 : *(behind - 1);
  const std::int64_t fresh = ++last_id_;
  for (std::int32_t i = begin; i < *behind; ++i) {
    const Node& node = graph_.node(i);
    for (const auto arguments : {graph_.inputs(node), graph_.outputs(node)}) {
      for_each_tensor(graph_, arguments, [&](const Tensor& tensor) {
        if (tensor.*id != old) return;
        graph_.tensors[&tensor - graph_.tensors.data()].*id = fresh;
      });
    }
  }
}

}  // namespace perfmodel
