#include "call_work.hpp"

#include <algorithm>
#include <utility>

#include "price/kernels/recurrent_steps.hpp"

namespace perfmodel {
namespace {

void set_world(KernelWork& work, std::int64_t world) {
  auto* shape = std::get_if<CollectiveShape>(&work.shape);
  if (shape && shape->world_size <= 1 && shape->ranks.empty() && world > 1) {
    shape->world_size = world;
  }
}

}  // namespace

std::int32_t comm_node(const ExecutionGraph& graph, std::int32_t node) {
  node = graph.find_around(
      node, [&](std::int32_t i) { return graph.node(i).comm >= 0 || graph.node(i).is_structural; });
  return node >= 0 && graph.node(node).comm >= 0 ? node : -1;
}

std::optional<KernelWork> comm_work(const ExecutionGraph& graph, const Gpu& gpu,
                                    std::int32_t comm_node, std::int64_t world) {
  if (comm_node < 0) return {};
  const OpRule* rule = OpRuleRegistry::builtin().find(graph.name(comm_node));
  if (!rule) return {};
  std::vector<KernelWork> work;
  const OpView view{graph, graph.node(comm_node), nullptr};
  if (!rule->lower(view, gpu, work) || work.empty()) return {};
  set_world(work.front(), world);
  return std::move(work.front());
}

LaunchedWork launched_work(const ExecutionGraph& graph, const Gpu& gpu, const LoweredCall& lowered,
                           LoweredOp& op, std::int64_t world) {
  const TemplateCall& call = *lowered.call;
  LaunchedWork made{.inferred = lowered.inferred};
  if (lowered.work >= 0) {
    made.work = std::move(op.work[lowered.work]);
    set_world(made.work, world);
  } else if (call.collective) {
    made.work.family = KernelFamily::kCollective;
    if (auto recorded = comm_work(graph, gpu, comm_node(graph, lowered.node), world)) {
      made = {.work = std::move(*recorded)};
    }
  } else if (call.kind == TemplateCall::Kind::kCopy) {
    made.work.family = KernelFamily::kCopy;
    made.work.shape = CopyShape{.kind = call.copy, .pageable = call.pageable};
  } else if (call.kind == TemplateCall::Kind::kSet) {
    made.work.family = KernelFamily::kSet;
  }
  if (auto* shape = std::get_if<CopyShape>(&made.work.shape); shape && !call.kernel.empty()) {
    shape->pageable = call.pageable;
  }
  return made;
}

double launches_of_library(const KernelWork& work, const Gpu& gpu) {
  const auto* steps = std::get_if<RecurrentShape>(&work.shape);
  return steps && gpu.architecture.recurrent_cycles ? kernels::launches_of_steps(*steps) : 1;
}

std::string work_name(const ExecutionGraph& graph, const LoweredCall& lowered,
                      const KernelWork& work) {
  const TemplateCall& call = *lowered.call;
  const Node& node = graph.node(lowered.node);
  if (!call.kernel.empty()) return call.kernel;
  if (graph.names.text(node.kernel_backend) == "triton") return std::string(graph.name(node));
  if (const auto* shape = std::get_if<CollectiveShape>(&work.shape)) return "nccl:" + shape->kind;
  if (call.kind != TemplateCall::Kind::kCopy) return std::string(to_string(work.family));
  switch (call.copy) {
    case CopyKind::kHostToDevice: return "Memcpy HtoD";
    case CopyKind::kDeviceToHost: return "Memcpy DtoH";
    case CopyKind::kDeviceToDevice: return "Memcpy DtoD";
    case CopyKind::kPeer: return "Memcpy PtoP";
  }
  return std::string(to_string(work.family));
}

Term device_term(const TemplateCall& call, bool collective) {
  if (collective) return Term::kCollective;
  if (call.kind == TemplateCall::Kind::kCopy) return Term::kCopy;
  return call.kind == TemplateCall::Kind::kSet ? Term::kSet : Term::kKernel;
}

double launch_latency_us(const TemplateCall& call, Term term, const OverheadTable& table) {
  if (call.blocking) {
    return call.copy == CopyKind::kDeviceToHost ? table.device.blocking_read_latency_us
                                                : table.device.blocking_write_latency_us;
  }
  if (term == Term::kCollective) return table.device.collective_latency_us;
  return term == Term::kKernel ? table.device.launch_latency_us : table.device.copy_latency_us;
}

void find_recorded_waits(const ExecutionGraph& graph, std::int32_t node,
                         std::vector<std::int32_t>& waits) {
  const Node& at = graph.node(node);
  if (at.comm >= 0 && graph.comm_records[at.comm].collective == "wait") {
    waits.push_back(node);
  }
  for (std::int32_t child : graph.children(at)) find_recorded_waits(graph, child, waits);
}

std::int32_t last_node_before(const ExecutionGraph& graph, const LoweredCall& call) {
  const auto children = graph.children(call.node);
  if (call.after_children == 0 || children.empty()) return call.node;
  std::int32_t last = children[std::min<std::size_t>(call.after_children, children.size()) - 1];
  for (;;) {
    const auto below = graph.children(last);
    if (below.empty()) return last;
    last = below.back();
  }
}

}  // namespace perfmodel
