#include "scoring_ops.hpp"

#include <string_view>

namespace perfmodel {
namespace {

class ScoringFinder {
 public:
  explicit ScoringFinder(const StepView& step) : step_(step), graph_(step.graph()) {}

  std::vector<std::vector<std::int32_t>> find() {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (step_.backward().in_backward[i]) break;
      if (graph_.node(i).is_label) continue;
      if (graph_.name(i) == "aten::tanh") look_behind(i);
    }
    return std::move(found_);
  }

 private:
  // The op that made the first input; -1: none.
  std::int32_t maker_of_input(std::int32_t index) const {
    const auto inputs = graph_.inputs(index);
    if (inputs.empty() || inputs[0].kind != Argument::Kind::kTensor) return -1;
    const Values& tensors = step_.tensors();
    return tensors.maker(tensors.of(graph_.tensors[inputs[0].index]));
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
    const auto& producers = step_.backward().input_producers[index];
    return a.numel != b.numel && producers.size() >= 2 && producers[0] >= 0 && producers[1] >= 0;
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  std::vector<std::vector<std::int32_t>> found_;
};

}  // namespace

std::vector<std::vector<std::int32_t>> scoring_ops(const StepView& step) {
  return ScoringFinder(step).find();
}

}  // namespace perfmodel
