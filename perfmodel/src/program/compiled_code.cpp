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

CompiledCode::CompiledCode(const ExecutionGraph& graph, const OverheadTable& table)
    : graph_(graph) {
  const TemplateCall kernel{.call = "cudaLaunchKernel"};
  launch_us_ = CallCosts(table).find(kernel).us;
  is_region_.resize(graph.names.size());
  is_replay_.resize(graph.names.size());
  std::optional<NameId> forward;
  for (NameId i = 0; i < graph.names.size(); ++i) {
    const std::string_view name = graph.names.text(i);
    if (name == kForward) forward = i;
    is_replay_[i] = name == kReplay;
    is_region_[i] = is_replay_[i] || is_compiled_region(name);
    has_replays_ |= is_replay_[i];
  }
  if (!forward) return;
  for (const Node& node : graph.nodes) {
    if (node.name != *forward || node.inputs_count == 0 || node.seq_id < 0) continue;
    tensors_[node.seq_id] = tensors_read(graph, node);
  }
}

// Looks for the forward function at or below a node, or a backward function of its number.
std::optional<int> CompiledCode::listed(std::int32_t node) const {
  const Node& at = graph_.node(node);
  if (graph_.name(at) == kForward && at.inputs_count > 0) return tensors_read(graph_, at);
  if (const auto known = tensors_.find(at.seq_id); known != tensors_.end()) {
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

bool CompiledCode::runs(const HostFacts::Item& item) const {
  const bool is_known = item.t2.level == KeyLevel::kContext || item.t2.level == KeyLevel::kName;
  return !is_known && is_region_[graph_.node(item.node).name];
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
    called += !is_region_[graph_.node(parent).name];
  }
  return called;
}

std::int32_t CompiledCode::replay_around(std::int32_t node) const {
  if (!has_replays_) return -1;
  return graph_.find_around(node,
                            [&](std::int32_t at) { return is_replay_[graph_.node(at).name]; });
}

}  // namespace perfmodel
