#include "attention_cores.hpp"

#include <string_view>

#include "kept_dropout.hpp"
#include "ops/catalogue.hpp"

namespace perfmodel {
namespace {

// What became of the scores of a product that is not finished yet.
class CoreFinder {
 public:
  explicit CoreFinder(const StepView& step)
      : graph_(step.graph()), pass_(step.backward()), cores_(step.tensors()) {}

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
      if (elements >= 0 || cores_[tensor].scores < 0) return;
      core = cores_[tensor];
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
      cores_[tensor] = carries ? core : AttentionCore{};
    });
  }

  const ExecutionGraph& graph_;
  const BackwardPass& pass_;
  FactsOfValues<AttentionCore> cores_;
  std::vector<AttentionCore> found_;
};

}  // namespace

std::vector<AttentionCore> attention_cores(const StepView& step) { return CoreFinder(step).find(); }

std::int32_t fused_attention_op(const ExecutionGraph& graph) {
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Op* op = find_op(graph.name(graph.nodes[i]));
    if (op && op->kind == OpKind::kAttention) return static_cast<std::int32_t>(i);
  }
  return -1;
}

}  // namespace perfmodel
