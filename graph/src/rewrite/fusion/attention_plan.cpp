#include "attention_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace perfmodel {
namespace {

constexpr std::int64_t kWidestHead = 256;  // flash attention and cuDNN on Hopper

Unexpected refuse_attention(std::string message) {
  return fail(ErrorCode::kImpossible, "attention: " + std::move(message));
}

std::string_view name_of_backend(AttentionBackend kernel) {
  switch (kernel) {
    case AttentionBackend::kFlash: return "flash";
    case AttentionBackend::kEfficient: return "efficient";
    case AttentionBackend::kCudnn: return "cudnn";
    case AttentionBackend::kMath: return "math";
  }
  return "";
}

FusedAttention::Kernel emitted_kernel(AttentionBackend kernel) {
  switch (kernel) {
    case AttentionBackend::kFlash: return FusedAttention::Kernel::kFlash;
    case AttentionBackend::kEfficient: return FusedAttention::Kernel::kEfficient;
    case AttentionBackend::kCudnn: return FusedAttention::Kernel::kCudnn;
    case AttentionBackend::kMath: break;
  }
  return FusedAttention::Kernel::kMath;
}

class AttentionPlanner {
 public:
  AttentionPlanner(const StepView& step, AttentionBackend kernel) : step_(step), kernel_(kernel) {}

  Result<AttentionPlan> plan(AttentionSite site, BackwardGroup backward) {
    AttentionPlan plan{.site = std::move(site), .backward = std::move(backward)};
    const double width = static_cast<double>(shape(plan.site.q).back());
    const bool usual = plan.site.scale && std::abs(*plan.site.scale * std::sqrt(width) - 1) < 1e-5;
    plan.options.dropout = plan.site.dropout;
    plan.options.causal = plan.site.causal;
    if (!usual) plan.options.scale = plan.site.scale;
    plan.options.kernel = emitted_kernel(kernel_);
    if (is_called_by_autocast(plan.site.out->op)) {
      plan.options.autocast = step_.graph().tensors[plan.site.out->tensor].dtype;
    }
    if (auto good = check_operands(plan); !good) return Unexpected{good.error()};
    if (auto good = check_backward(plan); !good) return Unexpected{good.error()};
    if (auto good = take_masks(plan); !good) return Unexpected{good.error()};
    return plan;
  }

  /// Warns of masks that were left out.
  std::vector<std::string> warnings() const {
    if (left_out_ == 0) return {};
    return {fmt::format(
        "attention: {} kernels read no padding: {} masks of keys are left out, as in a batch "
        "without padding (first: {})",
        name_of_backend(kernel_), left_out_, first_left_out_)};
  }

 private:
  std::vector<std::int64_t> shape(const Version* version) const {
    const auto sizes = step_.graph().shape(step_.graph().tensors[version->tensor]);
    return {sizes.begin(), sizes.end()};
  }
  std::string place(std::int32_t op) const {
    if (op < 0) return "a tensor from outside";
    return fmt::format("{} (node {})", step_.graph().name(op), step_.graph().node(op).id);
  }

  // Under autocast an op calls itself once more, with cast operands.
  bool is_called_by_autocast(std::int32_t op) const {
    const ExecutionGraph& graph = step_.graph();
    return std::ranges::any_of(graph.children(op), [&](std::int32_t child) {
      return graph.name(child) == graph.name(op);
    });
  }

  Result<void> check_operands(const AttentionPlan& plan) const {
    const AttentionSite& site = plan.site;
    const Tensor& q = step_.graph().tensors[site.q->tensor];
    const DType type = plan.options.autocast.value_or(q.dtype);
    const std::int64_t width = shape(site.q).back(), values = shape(site.v).back();
    const bool half = type == DType::kFloat16 || type == DType::kBFloat16;
    if (!q.on_gpu()) {
      return refuse_attention(
          fmt::format("expected attention on a GPU, found {} on a CPU: "
                      "--retarget comes first",
                      place(site.out->op)));
    }
    if (kernel_ == AttentionBackend::kMath) return {};
    if (kernel_ == AttentionBackend::kEfficient) {
      const std::int64_t aligned = half ? 8 : 4;
      if (width % aligned == 0 && values % aligned == 0) return {};
      return refuse_attention(fmt::format(
          "expected heads whose width is a multiple of {} for the memory-efficient kernel in {}, "
          "found {} in {}",
          aligned, to_string(type), width % aligned ? width : values, place(site.out->op)));
    }
    if (!half) {
      return refuse_attention(fmt::format(
          "expected queries in bf16 or fp16, found {} in {}: {} kernels have no other types, so "
          "--precision comes first",
          to_string(type), place(site.out->op), name_of_backend(kernel_)));
    }
    if (width != values || width > kWidestHead ||
        (kernel_ == AttentionBackend::kCudnn && width % 8 != 0)) {
      return refuse_attention(fmt::format(
          "expected heads of at most {} numbers{}, alike in queries and values, found {} and {} "
          "in {}",
          kWidestHead, kernel_ == AttentionBackend::kCudnn ? ", a multiple of 8" : "", width,
          values, place(site.out->op)));
    }
    return {};
  }

  // Only the gradient of the attention's result may come in.
  Result<void> check_backward(const AttentionPlan& plan) const {
    if (plan.backward.functions.empty()) return {};
    const auto& functions = step_.backward().functions;
    for (const GradientEdge& edge : plan.backward.incoming) {
      const std::int32_t to = step_.forward().op_around(functions[edge.to].forward);
      if (to == plan.site.out->op) continue;
      return refuse_attention(fmt::format(
          "expected backward functions of ops of {} alone between its gradients, found {}",
          place(plan.site.out->op), place(functions[edge.from].function)));
    }
    if (!plan.backward.incoming.empty()) return {};
    return refuse_attention(fmt::format("expected a gradient of the result of {}, found none",
                                        place(plan.site.out->op)));
  }

  bool has_gradient(const AttentionPlan& plan, const Version& mask) const {
    return std::ranges::any_of(plan.backward.outgoing, [&](const GradientEdge& edge) {
      const std::int32_t to = step_.backward().functions[edge.to].forward;
      return mask.op >= 0 && step_.forward().op_around(to) == mask.op;
    });
  }

  Result<void> take_masks(AttentionPlan& plan) {
    std::vector<AttentionMask> padding, others;
    for (const AttentionMask& mask : plan.site.masks) {
      const MaskKind kind = mask_kind(step_, mask);
      if (kind == MaskKind::kCausal && !has_gradient(plan, *mask.tensor)) {
        plan.options.causal = true;
      } else {
        (kind == MaskKind::kPadding ? padding : others).push_back(mask);
      }
    }
    const bool takes_mask =
        kernel_ == AttentionBackend::kEfficient || kernel_ == AttentionBackend::kMath;
    if (!others.empty() && !takes_mask) {
      return refuse_attention(fmt::format(
          "expected no mask but a causal one for the {} kernel, found one of [{}] that {} made, "
          "read in {}: efficient takes it",
          name_of_backend(kernel_), fmt::join(shape(others.front().tensor), ", "),
          place(others.front().tensor->op), place(plan.site.out->op)));
    }
    if (others.size() > 1 || (!others.empty() && plan.options.causal)) {
      return refuse_attention(fmt::format("expected one mask, found {} in {}",
                                          plan.site.masks.size(), place(plan.site.out->op)));
    }
    if (takes_mask && !plan.options.causal && others.empty() && padding.size() == 1) {
      std::swap(others, padding);
    }
    for (const AttentionMask& mask : padding) {
      if (left_out_++ == 0) first_left_out_ = place(mask.tensor->op);
    }
    if (others.empty()) return {};
    plan.mask = others.front();
    plan.mask_has_gradient = has_gradient(plan, *others.front().tensor);
    return {};
  }

  const StepView& step_;
  AttentionBackend kernel_;
  int left_out_ = 0;
  std::string first_left_out_;
};

Unexpected no_attention_found(const AttentionSites& found) {
  return refuse_attention(
      "expected a softmax between the product of queries and keys and the "
      "product with values, found none" +
      (found.broken.empty() ? "" : "; " + found.broken));
}

}  // namespace

Result<AttentionPlans> plan_attention(const StepView& step, AttentionBackend kernel) {
  AttentionSites found = find_attention(step);
  if (found.sites.empty()) return no_attention_found(found);
  std::vector<std::int32_t> site_of(step.graph().nodes.size(), -1);
  for (std::size_t i = 0; i < found.sites.size(); ++i) {
    for (const std::int32_t op : found.sites[i].ops) site_of[op] = static_cast<std::int32_t>(i);
  }
  std::vector<BackwardGroup> backward = backward_groups(step, site_of, found.sites.size());
  AttentionPlanner planner(step, kernel);
  AttentionPlans made;
  std::vector<Error> refused;
  const std::size_t count = found.sites.size();
  bool has_kernel = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (found.sites[i].kernel == kernel) {
      has_kernel = true;
      continue;
    }
    auto plan = planner.plan(std::move(found.sites[i]), std::move(backward[i]));
    if (plan) {
      made.plans.push_back(std::move(*plan));
    } else {
      refused.push_back(plan.error());
    }
  }
  if (made.plans.empty() && !has_kernel) return Unexpected{refused.front()};
  made.warnings = planner.warnings();
  if (!refused.empty()) {
    made.warnings.push_back(fmt::format("{} of {} stay as they are; {}", refused.size(), count,
                                        refused.front().message));
  }
  return made;
}

}  // namespace perfmodel
