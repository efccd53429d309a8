#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perfmodel/predictors/launch_templates.hpp"
#include "perfmodel/predictors/op_rules.hpp"

namespace perfmodel {

/// One host call of an op with the device work that it starts.
struct LoweredCall {
  TemplateCall call;
  std::int32_t node = -1;        ///< the node that makes the call
  std::uint16_t ordinal = 0;     ///< position among the node's own calls
  std::int32_t work = -1;        ///< into LoweredOp::work; -1: none (sync) or unknown
  bool inferred = false;         ///< only the template knows this kernel
  std::int32_t after_node = -1;  ///< last node (index) that starts before this call
};

/// A top-level op, or the own calls of a label, as host calls and kernels.
struct LoweredOp {
  std::int32_t node = -1;
  std::vector<LoweredCall> calls;
  std::vector<KernelWork> work;
};

/// Where the templates and rules of a lowering came from and where they disagreed.
struct LoweringStats {
  std::array<std::size_t, kTemplateLevels> nodes_by_level{};
  std::size_t nodes_by_rule = 0;         ///< no template, the op's rule gave the calls
  std::size_t disagreements = 0;         ///< template and rule give different numbers of kernels
  std::vector<std::int32_t> unmodelled;  ///< nodes that touch GPU memory and have neither
};

/// Turns nodes into host calls and kernels. The template fixes number, order, kind and stream of
/// the calls; the op's rule fixes the work and gives it to the node's main kernel(s); kernels that
/// only the template knows are small and `inferred`; without a template the rule gives all.
class Lowering {
 public:
  /// `templates` may be nullptr. All references must outlive the lowering.
  Lowering(const ExecutionGraph& graph, const Gpu& gpu, const LaunchTemplates* templates,
           const OpRuleRegistry& rules = OpRuleRegistry::builtin());

  /// `node` with everything below it.
  LoweredOp lower(std::int32_t node);

  /// Only the calls that a label makes itself, between its children.
  LoweredOp lower_label(std::int32_t node);

  const LoweringStats& stats() const { return stats_; }

 private:
  struct NodeFacts {
    bool touches_gpu = false, touches_cpu = false;
  };
  void add_node(std::int32_t index, LoweredOp& op);
  void own_calls(std::int32_t index, LoweredOp& op, std::vector<LoweredCall>& calls);
  void skew_lookups(double exponent);  ///< of the kernels at hand
  const OpRule* rule_of(const Node& node);

  const ExecutionGraph& graph_;
  const Gpu& gpu_;
  const LaunchTemplates* templates_;
  const OpRuleRegistry& rules_;
  std::vector<std::int32_t> partners_;
  std::vector<const OpRule*> rule_by_name_;
  std::vector<std::int8_t> rule_known_;
  std::vector<KernelWork> kernels_;  // scratch
  LoweringStats stats_;
};

}  // namespace perfmodel
