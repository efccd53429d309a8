#include "step_gradients.hpp"

#include <utility>

#include "step/autograd_names.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

// The item that runs a node, and links between nodes.
struct Links {
  std::vector<std::int32_t> item_of;   // by node; -1: none
  std::vector<std::int32_t> partners;  // see forward_partners
  const std::vector<bool>& of_parameter;
};

Links find_links(const StepView& step, const HostProgram& program) {
  const ExecutionGraph& graph = step.recorded();
  Links links{.item_of = std::vector<std::int32_t>(graph.nodes.size(), -1),
              .partners = forward_partners(graph),
              .of_parameter = step.parameter_gradients()};
  for (std::size_t i = 0; i < program.items.size(); ++i) {
    const ProgramItem& item = program.items[i];
    if (!item.is_label) links.item_of[item.node] = static_cast<std::int32_t>(i);
  }
  return links;
}

// Bytes of the parameter's gradient that an AccumulateGrad node takes.
double gradient_bytes(const ExecutionGraph& graph, const Links& links, std::int32_t node,
                      DType& dtype) {
  double bytes = 0;
  const Node& at = graph.node(node);
  if (links.of_parameter[node]) {
    for_each_tensor(graph, graph.inputs(at), [&](const Tensor& tensor) {
      if (bytes > 0 || !tensor.on_gpu()) return;
      bytes = static_cast<double>(tensor.bytes());
      dtype = tensor.dtype;
    });
  }
  for (std::int32_t child : graph.children(at)) {
    if (bytes > 0) break;
    bytes = gradient_bytes(graph, links, child, dtype);
  }
  return bytes;
}

std::int32_t forward_item(const ExecutionGraph& graph, const Links& links, std::int32_t node) {
  const std::int32_t top = graph.find_around(links.partners[node],
                                             [&](std::int32_t i) { return links.item_of[i] >= 0; });
  if (top >= 0) return links.item_of[top];
  for (std::int32_t child : graph.children(node)) {
    if (const std::int32_t found = forward_item(graph, links, child); found >= 0) return found;
  }
  return -1;
}

}  // namespace

std::vector<std::vector<StepGradient>> step_gradients(const ExecutionGraph& graph,
                                                      const HostProgram& program) {
  const StepView view(graph);
  const Links links = find_links(view, program);
  std::vector<std::vector<StepGradient>> steps(program.steps.size());
  std::int32_t producer = -1, step = -1;
  for (std::size_t i = 0; i < program.items.size(); ++i) {
    const ProgramItem& item = program.items[i];
    if (item.is_label) continue;
    if (std::exchange(step, item.iteration) != item.iteration) producer = -1;
    const std::string_view name = graph.name(item.node);
    if (!name.ends_with(kAccumulate)) {
      if (forward_item(graph, links, item.node) >= 0) producer = static_cast<std::int32_t>(i);
      continue;
    }
    StepGradient made{.item = static_cast<std::int32_t>(i), .producer = producer};
    made.bytes = gradient_bytes(graph, links, item.node, made.dtype);
    if (made.bytes <= 0) continue;  // a tensor on the host
    if (producer >= 0) {
      made.forward = forward_item(graph, links, program.item(producer).node);
    }
    steps[item.iteration].push_back(made);
  }
  return steps;
}

}  // namespace perfmodel
