#include "scoring_ops.hpp"

#include <string_view>
#include <unordered_map>

namespace perfmodel {
namespace {

class ScoringFinder {
 public:
  ScoringFinder(const ExecutionGraph& graph, const BackwardPass& pass)
      : graph_(graph), pass_(pass) {}

  std::vector<std::vector<std::int32_t>> find() {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (pass_.in_backward[i]) break;
      if (graph_.node(i).is_label) continue;
      if (graph_.name(i) == "aten::tanh") look_behind(i);
      note_results(i);
    }
    return std::move(found_);
  }

 private:
  // Of nested ops that give one tensor the outermost made it.
  void note_results(std::int32_t index) {
    const std::int32_t parent = graph_.node(index).parent;
    for_each_tensor(graph_, graph_.outputs(index), [&](const Tensor& tensor) {
      const auto at = maker_.find(tensor.id);
      const bool nested = at != maker_.end() && graph_.is_inside(parent, at->second);
      if (!nested) maker_[tensor.id] = index;
    });
  }

  // The op that made the first input; -1: none.
  std::int32_t maker_of_input(std::int32_t index) const {
    const auto inputs = graph_.inputs(index);
    if (inputs.empty() || inputs[0].kind != Argument::Kind::kTensor) return -1;
    const auto at = maker_.find(graph_.tensors[inputs[0].index].id);
    return at == maker_.end() ? -1 : at->second;
  }

  void look_behind(std::int32_t tanh) {
    std::vector<std::int32_t> ops = {tanh};
    std::int32_t maker = maker_of_input(tanh);
    if (maker >= 0 && graph_.name(maker) == "aten::layer_norm") {
      ops.insert(ops.begin(), maker);
      maker = maker_of_input(maker);
    }
    if (maker < 0 || !is_broadcast_sum(maker)) return;
    ops.insert(ops.begin(), maker);
    found_.push_back(std::move(ops));
  }

  bool is_broadcast_sum(std::int32_t index) const {
    const Node& sum = graph_.node(index);
    const auto inputs = graph_.inputs(sum), outputs = graph_.outputs(sum);
    if (graph_.name(sum) != "aten::add" || inputs.size() < 2 || outputs.empty()) return false;
    for (const Argument& argument : {inputs[0], inputs[1], outputs[0]}) {
      if (argument.kind != Argument::Kind::kTensor) return false;
    }
    const Tensor &a = graph_.tensors[inputs[0].index], &b = graph_.tensors[inputs[1].index];
    const auto& producers = pass_.input_producers[index];
    return a.numel != b.numel && producers.size() >= 2 && producers[0] >= 0 && producers[1] >= 0;
  }

  const ExecutionGraph& graph_;
  const BackwardPass& pass_;
  std::unordered_map<std::int64_t, std::int32_t> maker_;  // by tensor id
  std::vector<std::vector<std::int32_t>> found_;
};

}  // namespace

std::vector<std::vector<std::int32_t>> scoring_ops(const ExecutionGraph& graph,
                                                   const BackwardPass& pass) {
  return ScoringFinder(graph, pass).find();
}

}  // namespace perfmodel
