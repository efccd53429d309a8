#include "forward_flow.hpp"

#include <string_view>

namespace perfmodel {
namespace {

// Holds ops that the program could have called itself.
bool holds_ops(const ExecutionGraph& graph, const Node& node) {
  const std::string_view name = graph.name(node);
  if (node.is_label || node.is_structural || node.parent < 0) return true;
  if (node.children_count > 0 && name.find("::") == std::string_view::npos) return true;
  return name == "aten::lstm" || name == "aten::gru" || name == "aten::lstm_cell" ||
         name == "aten::gru_cell" || name.starts_with("aten::rnn_");
}

}  // namespace

ForwardFlow::ForwardFlow(const ExecutionGraph& graph, const Values& tensors,
                         const BackwardPass& pass)
    : around_(graph.nodes.size(), -1), edges_(graph.nodes.size()) {
  FactsOfValues<Version*> last(tensors, nullptr);
  const auto add_version = [&](const Tensor& tensor, std::int32_t op) {
    const auto entry = static_cast<std::uint32_t>(&tensor - graph.tensors.data());
    last[tensor] = &versions_.emplace_back(Version{.op = op, .tensor = entry});
    return last[tensor];
  };
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    const Node& node = graph.node(i);
    if (node.parent >= 0) around_[i] = around_[node.parent];
    if (around_[i] >= 0 || pass.in_backward[i] || holds_ops(graph, node)) continue;
    around_[i] = i;
    ops_.push_back(i);
    for_each_tensor(graph, graph.inputs(node), [&](const Tensor& tensor) {
      Version* read = last[tensor] ? last[tensor] : add_version(tensor, -1);
      if (read->readers.empty() || read->readers.back() != i) read->readers.push_back(i);
      edges_[i].inputs.push_back(read);
    });
    for_each_tensor(graph, graph.outputs(node), [&](const Tensor& tensor) {
      edges_[i].outputs.push_back(add_version(tensor, i));
    });
  }
}

}  // namespace perfmodel
