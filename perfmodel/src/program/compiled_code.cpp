#include "compiled_code.hpp"

#include <string_view>

#include "call_costs.hpp"
#include "perfmodel/graph/detail/event_names.hpp"

namespace perfmodel {
namespace {

constexpr std::string_view kReplay = "CUDAGraph.replay";

}  // namespace

CompiledCode::CompiledCode(const ExecutionGraph& graph, const OverheadTable& table)
    : graph_(graph) {
  const TemplateCall kernel{.call = "cudaLaunchKernel"};
  launch_us_ = CallCosts(table).find(kernel).us;
  is_region_.resize(graph.names.size());
  is_replay_.resize(graph.names.size());
  for (std::size_t i = 0; i < graph.names.size(); ++i) {
    const std::string_view name = graph.names.text(static_cast<NameId>(i));
    is_replay_[i] = name == kReplay;
    is_region_[i] = is_replay_[i] || is_compiled_region(name);
    has_replays_ |= is_replay_[i];
  }
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
  return found(is_triton ? kTritonKernel : kLibraryOp);
}

std::int32_t CompiledCode::replay_around(std::int32_t node) const {
  if (!has_replays_) return -1;
  return graph_.find_around(node,
                            [&](std::int32_t at) { return is_replay_[graph_.node(at).name]; });
}

}  // namespace perfmodel
