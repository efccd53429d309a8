#include "attention_support.hpp"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <optional>

namespace perfmodel {
namespace {

// "sm_80": 80; 0 of other vendors.
int compute_capability(const Gpu& gpu) {
  constexpr std::string_view kPrefix = "sm_";
  const std::string_view target = gpu.target;
  int capability = 0;
  if (target.starts_with(kPrefix)) {
    std::from_chars(target.data() + kPrefix.size(), target.data() + target.size(), capability);
  }
  return capability;
}

/// A call of fused attention, as far as it decides who can run it.
struct AttentionCall {
  std::string_view kernel;  ///< "flash", "efficient", "cudnn"
  bool is_backward = false;
  DType dtype = DType::kFloat32;
  std::int64_t width = 0;  ///< numbers per head
};

std::string_view attention_kernel(std::string_view op) {
  for (const std::string_view kernel : {"flash", "efficient", "cudnn"}) {
    const std::size_t at = op.find(kernel);
    if (at != op.npos && at > 0 && op[at - 1] == '_' &&
        op.substr(at + kernel.size()).starts_with("_attention")) {
      return kernel;
    }
  }
  return {};
}

// The gradient comes before q.
std::optional<AttentionCall> attention_call(const ExecutionGraph& graph, const Node& op) {
  const std::string_view name = graph.name(op);
  AttentionCall call{.kernel = attention_kernel(name),
                     .is_backward = name.find("backward") != name.npos};
  const std::size_t q = call.is_backward ? 1 : 0;
  const auto inputs = graph.inputs(op);
  if (call.kernel.empty() || inputs.size() <= q) return std::nullopt;
  if (inputs[q].kind != Argument::Kind::kTensor) return std::nullopt;
  const Tensor& tensor = graph.tensors[inputs[q].index];
  const auto shape = graph.shape(tensor);
  if (!tensor.on_gpu() || shape.empty()) return std::nullopt;
  call.dtype = tensor.dtype;
  call.width = shape.back();
  return call;
}

std::string lacks_type_or_width(const AttentionCall& call, const Gpu& gpu) {
  constexpr int kAmpere = 80, kHopper = 90, kFirstSmall = 86, kLastSmall = 89;
  constexpr std::int64_t kWidestOfCudnn = 128, kLastGood = 192, kLastBad = 224;
  const int capability = compute_capability(gpu);
  if (gpu.vendor == "amd") return "";
  if (call.kernel == "efficient" && call.dtype == DType::kBFloat16 && capability < kAmpere) {
    return fmt::format("efficient attention in bf16 needs sm_80 or later, {} is {}", gpu.name,
                       gpu.target);
  }
  if (call.kernel == "cudnn" && call.width > kWidestOfCudnn && capability != kHopper) {
    return fmt::format("cudnn attention with heads of {} needs sm_90, {} is {}", call.width,
                       gpu.name, gpu.target);
  }
  const bool is_small = capability >= kFirstSmall && capability <= kLastSmall;
  if (call.kernel == "flash" && call.is_backward && is_small && call.width > kLastGood &&
      call.width <= kLastBad) {
    return fmt::format(
        "flash attention has no gradients of heads of {} on sm_86 to sm_89, {} is {}", call.width,
        gpu.name, gpu.target);
  }
  return "";
}

}  // namespace

std::string lacks_attention(std::string_view kernel, const Gpu& gpu) {
  if (gpu.vendor == "amd") {
    if (kernel == "cudnn") return fmt::format("{} has no cuDNN", gpu.name);
    const bool has_kernels = gpu.target == "gfx90a" || gpu.target.starts_with("gfx94") ||
                             gpu.target.starts_with("gfx95");
    return has_kernels ? "" : fmt::format("PyTorch has no fused attention for {}", gpu.target);
  }
  constexpr int kAmpere = 80;
  if (kernel == "efficient" || compute_capability(gpu) >= kAmpere) return "";
  return fmt::format("{} attention needs sm_80 or later, {} is {}", kernel, gpu.name, gpu.target);
}

std::string lacks_attention(const ExecutionGraph& graph, const Node& op, const Gpu& gpu) {
  const auto call = attention_call(graph, op);
  if (!call) return "";
  const std::string reason = lacks_attention(call->kernel, gpu);
  return reason.empty() ? lacks_type_or_width(*call, gpu) : reason;
}

std::string lacking_calls(const std::string& reason, std::size_t calls) {
  return fmt::format("{}: {} {} could not run there", reason, calls, calls == 1 ? "call" : "calls");
}

std::vector<std::string> lacking_attention(const ExecutionGraph& graph, const Gpu& gpu) {
  std::map<std::string, std::size_t> calls;
  for (const Node& node : graph.nodes) {
    const bool is_inner = node.parent >= 0 && !attention_kernel(graph.name(node.parent)).empty();
    const std::string reason = is_inner ? "" : lacks_attention(graph, node, gpu);
    if (!reason.empty()) ++calls[reason];
  }
  std::vector<std::string> sentences;
  for (const auto& [reason, count] : calls) sentences.push_back(lacking_calls(reason, count));
  return sentences;
}

}  // namespace perfmodel
