#include "compiled_code.hpp"

#include <string_view>
#include <unordered_set>

#include "call_costs.hpp"
#include "perfmodel/graph/detail/event_names.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kReplay = "CUDAGraph.replay", kForward = "CompiledFunction";

int tensors_read(const ExecutionGraph& graph, const Node& node) {
  int count = 0;
  for_each_tensor(graph, graph.inputs(node), [&](const Tensor&) { ++count; });
  return count;
}

// Without a node that lists them: what ops below a node read and none of them made.
void read_from_outside(const ExecutionGraph& graph, std::int32_t region,
                       std::unordered_set<std::int64_t>& made,
                       std::unordered_set<std::int64_t>& read) {
  for (const std::int32_t child : graph.children(region)) {
    for_each_tensor(graph, graph.inputs(child), [&](const Tensor& tensor) {
      if (!made.contains(tensor.id)) read.insert(tensor.id);
    });
    read_from_outside(graph, child, made, read);
    for_each_tensor(graph, graph.outputs(child),
                    [&](const Tensor& tensor) { made.insert(tensor.id); });
  }
}

}  // namespace

CompiledNames find_compiled_names(const ExecutionGraph& graph, const OverheadTable& table) {
  CompiledNames made;
  const TemplateCall kernel{.call = "cudaLaunchKernel"};
  made.launch_us = CallCosts(table).find(kernel).us;
  made.is_region.resize(graph.names.size());
  made.is_replay.resize(graph.names.size());
  std::optional<NameId> forward;
  for (NameId i = 0; i < graph.names.size(); ++i) {
    const std::string_view name = graph.names.text(i);
    if (name == kForward) forward = i;
    made.is_replay[i] = name == kReplay;
    made.is_region[i] = made.is_replay[i] || is_compiled_region(name);
    made.has_replays |= made.is_replay[i];
  }
  if (!forward) return made;
  for (const Node& node : graph.nodes) {
    if (node.name != *forward || node.inputs_count == 0 || node.seq_id < 0) continue;
    made.tensors[node.seq_id] = tensors_read(graph, node);
  }
  return made;
}

// Looks for the forward function at or below a node, or a backward function of its number.
std::optional<int> CompiledCode::listed(std::int32_t node) const {
  const Node& at = graph_.node(node);
  if (graph_.name(at) == kForward && at.inputs_count > 0) return tensors_read(graph_, at);
  if (const auto known = names_.tensors.find(at.seq_id); known != names_.tensors.end()) {
    return known->second;
  }
  for (const std::int32_t child : graph_.children(node)) {
    if (const auto tensors = listed(child)) return tensors;
  }
  return std::nullopt;
}

double CompiledCode::entering(std::int32_t region) const {
  if (const auto tensors = listed(region)) return *tensors;
  std::unordered_set<std::int64_t> made, read;
  read_from_outside(graph_, region, made, read);
  return static_cast<double>(read.size());
}

bool CompiledCode::runs(std::int32_t node, const OverheadTerm::Found& t2) const {
  const bool is_known = t2.level == KeyLevel::kContext || t2.level == KeyLevel::kName;
  return !is_known && names_.is_region[graph_.node(node).name];
}

std::optional<OverheadTerm::Found> CompiledCode::between(std::int32_t node,
                                                         std::int32_t next) const {
  const std::int32_t replay = replay_around(next);
  if (replay >= 0 && replay == replay_around(node)) return std::nullopt;
  if (next == node) return found(kSameOp);
  const bool is_triton = graph_.names.text(graph_.node(next).kernel_backend) == "triton";
  return found((is_triton ? kTritonKernel : kLibraryOp) +
               kOpOfLibrary * called_between(node, next));
}

// Ops that library ops call without a launch of their own.
double CompiledCode::called_between(std::int32_t node, std::int32_t next) const {
  int called = 0;
  for (std::int32_t at = node + 1; at < next; ++at) {
    const std::int32_t parent = graph_.node(at).parent;
    if (parent < 0 || graph_.node(parent).is_label) continue;
    called += !names_.is_region[graph_.node(parent).name];
  }
  return called;
}

std::int32_t CompiledCode::replay_around(std::int32_t node) const {
  if (!names_.has_replays) return -1;
  return graph_.find_around(
      node, [&](std::int32_t at) { return names_.is_replay[graph_.node(at).name]; });
}

}  // namespace perfmodel
