#include "perfmodel/predictors/lower.hpp"

#include <algorithm>

namespace perfmodel {
namespace {

bool is_kernel_like(const TemplateCall& call) { return call.kind != TemplateCall::Kind::kSync; }

// The runtime call that starts a kernel of this family where no template names it.
TemplateCall call_for(const KernelWork& work, const Gpu& gpu) {
  const bool amd = gpu.vendor == "amd";
  TemplateCall call;
  call.call = amd ? "hipLaunchKernel" : "cudaLaunchKernel";
  if (work.family == KernelFamily::kCopy) {
    const auto& shape = std::get<CopyShape>(work.shape);
    call.kind = TemplateCall::Kind::kCopy;
    call.copy = shape.kind;
    call.pageable = shape.pageable;
    call.blocking = shape.pageable && shape.kind == CopyKind::kDeviceToHost;
    call.call = amd ? "hipMemcpyWithStream" : "cudaMemcpyAsync";
  } else if (work.family == KernelFamily::kSet) {
    call.kind = TemplateCall::Kind::kSet;
    call.call = amd ? "hipMemsetAsync" : "cudaMemsetAsync";
  } else if (work.family == KernelFamily::kCollective) {
    call.collective = true;
    call.stream = 1;
  }
  return call;
}

// A kernel whose name tells that it does the main part of an op of this family, for ops that launch
// more kernels than the rule knows (layout changes, split-K sums, set-up kernels).
bool names_family(std::string_view kernel, KernelFamily family) {
  const auto has = [kernel](std::string_view part) {
    return kernel.find(part) != std::string_view::npos;
  };
  switch (family) {
    case KernelFamily::kGemm:
      return has("gemm") || has("Cijk") || has("gemv") || has("cutlass");
    case KernelFamily::kConvolution:
      return has("conv") || has("winograd") || has("scudnn") || has("gemm") || has("grad") ||
             has("fft");
    case KernelFamily::kEmbeddingForward:
      return has("embedding") && has("forward");
    case KernelFamily::kEmbeddingBackward:
      return has("embedding") && has("backward");
    case KernelFamily::kNorm:
      return has("bn_") || has("norm");
    case KernelFamily::kSort:
      return has("Sort") || has("sort");
    case KernelFamily::kReduction:
      return has("reduce");
    default:
      return false;
  }
}

// Which of the node's kernel calls does each piece of the rule's work: in order where the numbers
// agree; else the calls named like the family, else the last ones.
std::vector<std::size_t> main_calls(const std::vector<LoweredCall>& calls,
                                    const std::vector<std::size_t>& kernels,
                                    const std::vector<KernelWork>& work) {
  if (kernels.size() <= work.size()) return kernels;
  std::vector<std::size_t> chosen;
  for (std::size_t call : kernels) {
    if (chosen.size() < work.size() &&
        names_family(calls[call].call.kernel, work[chosen.size()].family)) {
      chosen.push_back(call);
    }
  }
  for (std::size_t i = kernels.size(); i-- > 0 && chosen.size() < work.size();) {
    if (std::find(chosen.begin(), chosen.end(), kernels[i]) == chosen.end()) {
      chosen.push_back(kernels[i]);
    }
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

void merge(KernelWork& into, const KernelWork& from) {
  into.flop += from.flop;
  into.bytes_read += from.bytes_read;
  into.bytes_written += from.bytes_written;
}

// Compatible kinds: a copy call cannot do a kernel's work and the reverse.
bool can_do(const TemplateCall& call, const KernelWork& work) {
  const bool copy_call = call.kind == TemplateCall::Kind::kCopy;
  const bool set_call = call.kind == TemplateCall::Kind::kSet;
  if (copy_call) return work.family == KernelFamily::kCopy;
  if (set_call) return work.family == KernelFamily::kSet;
  return true;
}

// Whether a template knows calls of a child; those of the label inside of a collective's record
// launch it.
bool children_launch(const ExecutionGraph& graph, const Node& node,
                     const LaunchTemplates& templates) {
  return std::ranges::any_of(graph.children(node), [&](std::int32_t child) {
    const Node& at = graph.nodes[static_cast<std::size_t>(child)];
    const LaunchTemplates::Found found = templates.find(template_keys(graph, at));
    return found.calls && std::ranges::any_of(*found.calls, is_kernel_like);
  });
}

}  // namespace

Lowering::Lowering(const ExecutionGraph& graph, const Gpu& gpu, const LaunchTemplates* templates,
                   const OpRuleRegistry& rules)
    : graph_(graph),
      gpu_(gpu),
      templates_(templates),
      rules_(rules),
      partners_(forward_partners(graph)),
      rule_by_name_(graph.names.size(), nullptr),
      rule_known_(graph.names.size(), 0) {}

const OpRule* Lowering::rule_of(const Node& node) {
  if (!rule_known_[node.name]) {
    rule_known_[node.name] = 1;
    rule_by_name_[node.name] = graph_.names.text(node.kernel_backend) == "triton"
                                   ? rules_.find("triton")
                                   : rules_.find(graph_.name(node));
  }
  return rule_by_name_[node.name];
}

LoweredOp Lowering::lower(std::int32_t node) {
  LoweredOp op{.node = node, .calls = {}, .work = {}};
  add_node(node, op);
  return op;
}

LoweredOp Lowering::lower_label(std::int32_t node) {
  LoweredOp op{.node = node, .calls = {}, .work = {}};
  own_calls(node, op, op.calls);
  return op;
}

void Lowering::add_node(std::int32_t index, LoweredOp& op) {
  const Node& node = graph_.nodes[static_cast<std::size_t>(index)];
  std::vector<LoweredCall> own;
  own_calls(index, op, own);
  const auto children = graph_.children(node);
  std::size_t next = 0;
  for (std::size_t child = 0; child <= children.size(); ++child) {
    for (;
         next < own.size() && (own[next].call.after_children <= child || child == children.size());
         ++next) {
      op.calls.push_back(std::move(own[next]));
    }
    if (child < children.size()) add_node(children[child], op);
  }
}

void Lowering::skew_lookups(double exponent) {
  for (KernelWork& work : kernels_) {
    auto* shape = std::get_if<EmbeddingShape>(&work.shape);
    if (shape) shape->zipf_exponent = exponent;
  }
}

void Lowering::own_calls(std::int32_t index, LoweredOp& op, std::vector<LoweredCall>& calls) {
  const Node& node = graph_.nodes[static_cast<std::size_t>(index)];
  bool touches_gpu = false;
  const auto look = [&](const Tensor& tensor) { touches_gpu |= tensor.on_gpu(); };
  for_each_tensor(graph_, graph_.inputs(node), look);
  for_each_tensor(graph_, graph_.outputs(node), look);

  const OpRule* rule = node.is_label ? nullptr : rule_of(node);
  kernels_.clear();
  bool rule_spoke = false;
  if (rule && touches_gpu) {
    const std::int32_t partner = partners_[static_cast<std::size_t>(index)];
    const OpView view{graph_, node,
                      partner >= 0 ? &graph_.nodes[static_cast<std::size_t>(partner)] : nullptr};
    rule_spoke = rule->lower(view, gpu_, kernels_);
    if (!rule_spoke) kernels_.clear();
    if (node.index_zipf_exponent > 0) skew_lookups(node.index_zipf_exponent);
  }

  LaunchTemplates::Found found;
  if (templates_) found = templates_->find(template_keys(graph_, node));
  // A name alone says little where a rule knows the arguments; tensors all on the CPU launch
  // nothing.
  const bool name_only =
      found.level == TemplateLevel::kName || found.level == TemplateLevel::kChildren;
  if (found.calls && name_only && (rule_spoke || (!touches_gpu && node.inputs_count > 0))) {
    found.calls = nullptr;
  }
  // All collectives have one name: a record with the same devices and other children may be of
  // another kind, whose label no template knows. Then the record launches it.
  if (found.calls && found.level == TemplateLevel::kNameDevices && node.comm >= 0 &&
      !kernels_.empty() && !children_launch(graph_, node, *templates_)) {
    found.calls = nullptr;
  }

  if (found.calls) {
    ++stats_.nodes_by_level[static_cast<std::size_t>(found.level)];
    std::vector<std::size_t> kernel_calls;
    std::uint16_t ordinal = 0;
    for (const TemplateCall& call : *found.calls) {
      if (is_kernel_like(call)) kernel_calls.push_back(calls.size());
      calls.push_back(
          {.call = call, .node = index, .ordinal = ordinal++, .inferred = is_kernel_like(call)});
    }
    if (rule_spoke && kernels_.size() != kernel_calls.size()) ++stats_.disagreements;
    if (!kernels_.empty() && !kernel_calls.empty()) {
      const auto chosen = main_calls(calls, kernel_calls, kernels_);
      for (std::size_t i = 0; i < kernels_.size(); ++i) {
        LoweredCall& call = calls[chosen[std::min(i, chosen.size() - 1)]];
        if (!can_do(call.call, kernels_[i])) continue;
        if (call.work >= 0) {
          merge(op.work[static_cast<std::size_t>(call.work)], kernels_[i]);
          continue;
        }
        call.work = static_cast<std::int32_t>(op.work.size());
        call.inferred = false;
        op.work.push_back(kernels_[i]);
      }
    }
    return;
  }

  if (rule_spoke) {
    ++stats_.nodes_by_rule;
    std::uint16_t ordinal = 0;
    const auto after =
        static_cast<std::uint16_t>(std::min<std::size_t>(node.children_count, 0xffff));
    for (const KernelWork& work : kernels_) {
      TemplateCall call = call_for(work, gpu_);
      call.after_children = after;
      const bool wait = call.kind == TemplateCall::Kind::kCopy && call.pageable;
      calls.push_back({.call = call,
                       .node = index,
                       .ordinal = ordinal++,
                       .work = static_cast<std::int32_t>(op.work.size())});
      op.work.push_back(work);
      if (wait) {  // a pageable copy_ is followed by a synchronise of its stream
        TemplateCall sync{.kind = TemplateCall::Kind::kSync, .sync = SyncKind::kStream};
        sync.after_children = after;
        sync.call = gpu_.vendor == "amd" ? "hipStreamSynchronize" : "cudaStreamSynchronize";
        calls.push_back({.call = sync, .node = index, .ordinal = ordinal++});
      }
    }
    return;
  }
  // Composite ops do their work through children; only a leaf on GPU tensors is a gap in our
  // knowledge.
  if (touches_gpu && !node.is_label && node.children_count == 0) stats_.unmodelled.push_back(index);
}

}  // namespace perfmodel
