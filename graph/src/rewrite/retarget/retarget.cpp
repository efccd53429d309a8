#include "perfmodel/graph/rewrites/retarget.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "retarget_placement.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

/// Ops of libraries that compute on a CPU alone.
bool is_cpu_only(std::string_view op) {
  constexpr std::string_view kParts[] = {"mkldnn",    "onednn",  "xnnpack",    "quantized",
                                         "_for_cpu",  "_mkl_",   "mkl::",      "_nnpack",
                                         "prepacked", "fbgemm_", "dequantize", "quantize_per"};
  return std::any_of(std::begin(kParts), std::end(kParts), [&](std::string_view part) {
    return op.find(part) != std::string_view::npos;
  });
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
      on_cpu += tensor.on_cpu() ? 1 : 0;
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

Result<void> check_ops(const ExecutionGraph& graph) {
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

// What is written anew is written as the recording's PyTorch would. 1.x makes handles for its
// labels and reshapes by aliases.
PyTorch dialect(const ExecutionGraph& graph, const Placement& placement) {
  bool old = std::find(placement.is_artefact.begin(), placement.is_artefact.end(), true) !=
             placement.is_artefact.end();
  for (const Node& node : graph.nodes) old |= graph.name(node) == "aten::_reshape_alias";
  return old ? PyTorch{.major = 1, .minor = 13} : PyTorch{};
}

}  // namespace

Result<ExecutionGraph> retarget(const ExecutionGraph& graph, const RetargetOptions& options) {
  if (auto good = check_devices(graph); !good) return Unexpected{good.error()};
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  const Placement placement = place_on_gpu(graph);
  auto made = Retargeter(placement, dialect(graph, placement), options).run();
  if (!made) return made;
  if (auto good = check_ops(*made); !good) return Unexpected{good.error()};
  return made;
}

}  // namespace perfmodel
