#include <string_view>

#include "attention_sites.hpp"
#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace {

// Finds the kernel that the call runs; under autocast it calls itself first.
std::optional<AttentionBackend> called_backend(const ExecutionGraph& graph, std::int32_t call) {
  for (const std::int32_t child : graph.children(call)) {
    const std::string_view name = graph.name(child);
    const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
    if (name == graph.name(call)) return called_backend(graph, child);
    if (has("_flash_attention")) return AttentionBackend::kFlash;
    if (has("_efficient_attention")) return AttentionBackend::kEfficient;
    if (has("_cudnn_attention")) return AttentionBackend::kCudnn;
    if (has("_attention_math")) return AttentionBackend::kMath;
  }
  return std::nullopt;
}

}  // namespace

std::optional<AttentionSite> attention_call(const StepView& step, std::int32_t op) {
  const ExecutionGraph& graph = step.graph();
  const auto arguments = graph.inputs(op);
  const auto& inputs = step.forward().inputs(op);
  if (inputs.size() < 3 || arguments.size() < 6) return std::nullopt;
  AttentionSite site = {.ops = {op}, .q = inputs[0], .k = inputs[1], .v = inputs[2]};
  site.out = step.forward().outputs(op).front();
  if (inputs.size() > 3) {
    using Form = AttentionMask::Form;
    const bool selects = graph.tensors[inputs[3]->tensor].dtype == DType::kBool;
    site.masks.push_back({inputs[3], selects ? Form::kKeeps : Form::kAdds});
  }
  site.dropout = number_of(arguments[4]).value_or(0);
  site.causal = arguments[5].integer != 0;
  if (arguments.size() > 6) site.scale = number_of(arguments[6]);
  site.kernel = called_backend(graph, op);
  return has_operands(graph, site) ? std::optional(std::move(site)) : std::nullopt;
}

bool has_operands(const ExecutionGraph& graph, const AttentionSite& site) {
  const auto shape = [&](const Version* one) { return graph.shape(graph.tensors[one->tensor]); };
  const auto q = shape(site.q), k = shape(site.k), v = shape(site.v);
  const std::size_t rank = q.size();
  const bool alike = (rank == 3 || rank == 4) && k.size() == rank && v.size() == rank;
  return alike && q[0] == k[0] && q[0] == v[0] &&
         q[rank - 1] == k[rank - (site.k_is_turned ? 2 : 1)];
}

}  // namespace perfmodel
