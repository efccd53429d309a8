#include "edits.hpp"

#include <algorithm>

namespace perfmodel::resize {

void renew_splits(ExecutionGraph& graph, const Node& node) {
  if (node.comm < 0) return;
  const auto inputs = graph.inputs(node);
  const auto name = std::find_if(inputs.begin(), inputs.end(), [](const Argument& argument) {
    return argument.kind == Argument::Kind::kString;
  });
  CommRecord& record = graph.comm_records[node.comm];
  std::vector<std::int64_t>* splits[] = {&record.in_splits, &record.out_splits};
  auto at = name == inputs.end() ? name : name + 1;
  for (std::vector<std::int64_t>* list : splits) {
    if (at == inputs.end() || at->kind != Argument::Kind::kList) return;
    const auto elements = graph.elements(*at++);
    if (elements.size() != list->size()) return;
    for (std::size_t i = 0; i < elements.size(); ++i) (*list)[i] = elements[i].integer;
  }
}

ExecutionGraph edited(const ExecutionGraph& graph, const Edits& edits) {
  ExecutionGraph made = graph;
  make_edits(edits, graph, made, [](const auto& number) { return number.value(); });
  for (const Node& node : made.nodes) renew_splits(made, node);
  return made;
}

}  // namespace perfmodel::resize
