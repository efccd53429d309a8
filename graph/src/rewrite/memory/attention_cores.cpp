#include "attention_cores.hpp"

#include <string_view>
#include <unordered_map>

#include "kept_dropout.hpp"
#include "ops/catalogue.hpp"

namespace perfmodel {
namespace {

// What became of the scores of a product that is not finished yet.
class CoreFinder {
 public:
  CoreFinder(const ExecutionGraph& graph, const BackwardPass& pass) : graph_(graph), pass_(pass) {}

  std::vector<AttentionCore> find() {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (pass_.in_backward[i]) break;
      if (!graph_.node(i).is_label) follow(i);
    }
    return std::move(found_);
  }

 private:
  // Outer nodes first: those below, which come after, know better.
  void follow(std::int32_t index) {
    const Node& n = graph_.node(index);
    const std::string_view name = graph_.name(n);
    const Op* op = find_op(name);
    if (op && op->kind == OpKind::kAllocation) return;
    AttentionCore core;
    std::int64_t elements = -1;  // of the tensor that carries it
    for_each_tensor(graph_, graph_.inputs(n), [&](const Tensor& tensor) {
      const auto at = cores_.find(tensor.id);
      if (elements >= 0 || at == cores_.end()) return;
      core = at->second;
      elements = tensor.numel;
    });
    if (name == "aten::bmm" || name == "aten::baddbmm") {
      if (core.softmax >= 0 && n.seq_id >= 0) {
        core.values = index;
        found_.push_back(core);
      }
      core = {.scores = index};
    } else if (op && op->kind == OpKind::kProduct) {
      core = {};
    } else if (core.scores >= 0) {
      if (name == "aten::_softmax" || name == "aten::_safe_softmax" ||
          name == "aten::_masked_softmax") {
        core.softmax = index;
      }
      if (core.softmax >= 0 && draws_mask(graph_, n)) core.dropout = index;
    }
    for_each_tensor(graph_, graph_.outputs(n), [&](const Tensor& tensor) {
      const bool carries = core.scores == index || tensor.numel == elements;
      if (core.scores >= 0 && carries) {
        cores_[tensor.id] = core;
      } else {
        cores_.erase(tensor.id);
      }
    });
  }

  const ExecutionGraph& graph_;
  const BackwardPass& pass_;
  std::unordered_map<std::int64_t, AttentionCore> cores_;  // by tensor id
  std::vector<AttentionCore> found_;
};

}  // namespace

std::vector<AttentionCore> attention_cores(const ExecutionGraph& graph, const BackwardPass& pass) {
  return CoreFinder(graph, pass).find();
}

std::int32_t fused_attention_op(const ExecutionGraph& graph) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Op* op = find_op(graph.name(graph.nodes[i]));
    if (op && op->kind == OpKind::kAttention) return static_cast<std::int32_t>(i);
  }
  return -1;
}

}  // namespace perfmodel
