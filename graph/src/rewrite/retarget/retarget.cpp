#include "perfmodel/graph/rewrites/retarget.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "base/contains.hpp"
#include "perfmodel/graph/captured.hpp"
#include "perfmodel/graph/detail/collective_name.hpp"
#include "retarget_placement.hpp"
#include "retarget_rules.hpp"
#include "rewrite/name_pattern.hpp"
#include "rewrite/precision/recorded_precision.hpp"
#include "step/dialect.hpp"
#include "step/step_view.hpp"
#include "step/unique_ids.hpp"

namespace perfmodel {
namespace {

/// Ops of libraries that compute on a CPU alone.
bool is_cpu_only(std::string_view op) {
  constexpr std::string_view kParts[] = {"mkldnn",    "onednn",  "xnnpack",    "quantized",
                                         "_for_cpu",  "_mkl_",   "mkl::",      "_nnpack",
                                         "prepacked", "fbgemm_", "dequantize", "quantize_per"};
  return std::ranges::any_of(
      kParts, [&](std::string_view part) { return op.find(part) != std::string_view::npos; });
}

Unexpected refuse_retarget(std::string message) {
  return fail(ErrorCode::kImpossible, std::move(message));
}

Result<void> check_devices(const ExecutionGraph& graph) {
  std::size_t on_cpu = 0;
  for (const Node& node : graph.nodes) {
    bool on_gpu = false;
    const auto look = [&](const Tensor& tensor) {
      on_gpu |= tensor.on_gpu();
      on_cpu += tensor.on_cpu() || tensor.on_meta() ? 1 : 0;
    };
    for_each_tensor(graph, graph.inputs(node), look);
    for_each_tensor(graph, graph.outputs(node), look);
    if (on_gpu) {
      return refuse_retarget(fmt::format(
          "retarget: expected a graph of a machine without a GPU, found tensors on a GPU in \"{}\" "
          "(node {})",
          graph.name(node), node.id));
    }
  }
  if (on_cpu == 0) return refuse_retarget("retarget: expected tensors on a CPU, found none");
  return {};
}

Result<void> check_no_cpu_ops(const ExecutionGraph& graph) {
  std::set<std::string> left;
  for (const Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    if (!node.is_label && is_cpu_only(name) && name.find("AccumulateGrad") == name.npos) {
      left.emplace(name);
    }
  }
  if (left.empty()) return {};
  return refuse_retarget(fmt::format(
      "retarget: expected ops that a GPU has too, found some of CPUs alone without a known "
      "counterpart: {}",
      fmt::join(left, ", ")));
}

// New ops are written as the recording's PyTorch would. 1.x makes handles for its labels and
// reshapes by aliases.
PyTorch dialect_on_gpu(const ExecutionGraph& graph, const Placement& placement) {
  if (const auto captured = pytorch_of_capture(graph)) return *captured;
  const bool is_old = std::ranges::count(placement.is_artefact, true) > 0 ||
                      std::ranges::any_of(graph.nodes, [&](const Node& node) {
                        return graph.name(node) == "aten::_reshape_alias";
                      });
  return is_old ? PyTorch{.major = 1, .minor = 13} : PyTorch{};
}

std::string thread_name(const ExecutionGraph& graph) {
  const auto thread = std::ranges::find_if(
      graph.nodes, [&](const Node& node) { return graph.name(node).ends_with("|thread]"); });
  return thread == graph.nodes.end() ? "[pytorch|profiler|execution_trace|thread]"
                                     : std::string(graph.name(*thread));
}

// PyTorch 1.13 calls threads otherwise than 2.x and the builders. Tables of hosts, in which gaps
// between ops have the names around them, come from 2.x.
void name_threads(ExecutionGraph& graph) {
  constexpr std::string_view kOld = "execution_graph|", kNew = "execution_trace|";
  for (Node& node : graph.nodes) {
    if (!node.is_structural) continue;
    std::string name(graph.name(node));
    const std::size_t at = name.find(kOld);
    if (at == name.npos) continue;
    node.name = graph.names.intern(name.replace(at, kOld.size(), kNew));
  }
}

// A CPU's backward functions run on the thread that asked for them, a GPU's on a thread of their
// own, whose node is started by the first.
void move_backward(ExecutionGraph& graph) {
  const auto evaluates = [&](std::size_t i) {
    return graph.nodes[i].thread == GraphBuilder::kMainThread &&
           is_evaluate_function(graph, graph.nodes[i]);
  };
  const std::vector<bool> moves = at_or_below(graph, evaluates);
  const auto first = std::ranges::find(moves, true) - moves.begin();
  if (first == static_cast<std::ptrdiff_t>(moves.size())) return;
  const Node process = graph.nodes.front();
  Node thread = process;
  thread.id = graph.nodes[first].id;
  thread.parent_id = process.id;
  thread.name = graph.names.intern(thread_name(graph));
  thread.thread = GraphBuilder::kAutogradThread;
  thread.rf_id = graph.nodes[first].rf_id;
  for (Node& node : graph.nodes) {  // room for one more id
    for (std::int64_t* id : {&node.id, &node.parent_id, &node.fw_parent}) {
      if (*id >= thread.id) ++*id;
    }
  }
  for (std::size_t i = 0; i < moves.size(); ++i) {
    Node& node = graph.nodes[i];
    if (!moves[i]) continue;
    node.thread = thread.thread;
    if (node.parent >= 0 && moves[node.parent]) continue;
    for (const std::int32_t child : graph.children(static_cast<std::int32_t>(i))) {
      Node& function = graph.node(child);
      if (function.scope == Scope::kBackward) function.fw_parent = node.parent_id;
    }
    node.parent_id = thread.id;
  }
  graph.nodes.push_back(thread);
  index_graph(graph);
}

// The op that calls a collective of the GPU's library; empty: it has no price.
std::string_view op_of_collective(std::string_view kind) {
  constexpr std::pair<std::string_view, std::string_view> kOps[] = {
      {"all_reduce", "c10d::allreduce_"}, {"broadcast", "c10d::broadcast_"},
      {"reduce", "c10d::reduce_"},        {"all_gather", "c10d::allgather_"},
      {"all_to_all", "c10d::alltoall_"},  {"reduce_scatter", "c10d::reduce_scatter_"}};
  const auto op = std::ranges::find(kOps, kind, [](const auto& row) { return row.first; });
  return op == std::end(kOps) ? std::string_view() : op->second;
}

// Gloo's label becomes the op that it has around it since PyTorch 1.13, where that is missing: a
// collective would cost nothing else.
void name_gloo_collectives(ExecutionGraph& graph) {
  constexpr std::string_view kGloo = "gloo:";
  for (Node& node : graph.nodes) {
    const std::string_view name = graph.name(node);
    if (!name.starts_with(kGloo)) continue;
    const auto calls = [&](std::int32_t around) {
      const std::string_view op = graph.name(around);
      return op.starts_with("c10d::") || op.find("c10d_functional::") != op.npos;
    };
    if (graph.find_around(node.parent, calls) >= 0) continue;
    const std::string_view op = op_of_collective(collective_in_name(name.substr(kGloo.size())));
    if (op.empty()) {
      add_once(graph.warnings, fmt::format("{} has no price on a GPU", name));
      continue;
    }
    node.name = graph.names.intern(std::string(op));
    node.scope = Scope::kFunction;
    node.is_label = false;
  }
}

void warn_of_cpu_autocast(const StepView& step, std::vector<std::string>& warnings) {
  const std::set<std::string_view> ops = ops_that_cpus_keep_narrow(step);
  if (ops.empty()) return;
  warnings.push_back(fmt::format(
      "{} compute{} in half precision, as autocast on a CPU lets {}, and would in fp32 on a GPU: "
      "--retarget an fp32 graph, then --precision",
      fmt::join(ops, ", "), ops.size() == 1 ? "s" : "", ops.size() == 1 ? "it" : "them"));
}

}  // namespace

Result<ExecutionGraph> retarget(const ExecutionGraph& graph, const RetargetOptions& options) {
  if (auto good = check_devices(graph); !good) return Unexpected{good.error()};
  const StepView step(graph);
  if (auto good = step.check("retarget", {}); !good) return Unexpected{good.error()};
  const Placement placement = place_on_gpu(step);
  auto made = Retargeter(step, placement, dialect_on_gpu(graph, placement), options).run();
  if (!made) return made;
  restore_recorded_ids(graph, step.graph(), *made);
  if (placement.is_captured()) name_threads(*made);
  move_backward(*made);
  name_gloo_collectives(*made);
  warn_of_cpu_autocast(step, made->warnings);
  if (auto good = check_no_cpu_ops(*made); !good) return Unexpected{good.error()};
  return made;
}

Result<void> retarget_captured(ExecutionGraph& graph, RetargetOptions::Vendor vendor) {
  if (!is_to_retarget(graph)) return {};
  auto made = retarget(graph, {.vendor = vendor});
  if (!made) {
    made.error().file = graph.source;
    return Unexpected{std::move(made.error())};
  }
  graph = std::move(*made);
  const bool amd = vendor == RetargetOptions::Vendor::kAmd;
  graph.warnings.push_back(fmt::format(
      "{}a graph of no GPU, to which --retarget {} gave the libraries of this one's vendor",
      kCapturedPrefix, amd ? "amd" : "nvidia"));
  put_captured_first(graph.warnings);
  return {};
}

}  // namespace perfmodel
