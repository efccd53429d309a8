#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "perfmodel/predictors/detail/launch_templates.hpp"
#include "perfmodel/predictors/detail/op_rules.hpp"

namespace perfmodel {

/// One host call of an op with the device work that it starts.
struct LoweredCall {
  const TemplateCall* call = nullptr;  ///< from a template or made by a rule; never null
  std::int32_t node = -1;              ///< the node that makes the call
  std::uint16_t ordinal = 0;           ///< position among the node's own calls
  std::uint16_t after_children = 0;    ///< the call comes after this many children of the node
  std::int32_t work = -1;              ///< into LoweredOp::work; -1: none (sync) or unknown
  bool inferred = false;               ///< only the template knows this kernel
  std::int16_t on_stream = -1;         ///< role, unless it is the call's

  std::int16_t stream() const { return on_stream >= 0 ? on_stream : call->stream; }
};

/// How much launch templates may decide.
enum class TemplateUse : std::uint8_t {
  kCalls,         ///< the host's calls and waits; rules decide which work exists
  kCallsAndWork,  ///< number, kind and stream of the kernels too: same program, same machine
};

/// A top-level op, or the own calls of a label, as host calls and kernels.
struct LoweredOp {
  std::int32_t node = -1;
  std::vector<LoweredCall> calls;
  std::vector<KernelWork> work;
};

/// Counts of nodes by source of their calls, and of disagreements between templates and rules.
struct LoweringStats {
  std::array<std::size_t, kTemplateLevels> nodes_by_level{};
  std::size_t nodes_by_rule = 0;  ///< no template, the op's rule gave the calls
  std::size_t disagreements = 0;  ///< template and rule give different numbers of kernels
  /// Nodes that touch GPU memory and have neither, or whose rule does not know their arguments;
  /// nodes with children only if no child's kernels explain them.
  std::vector<std::int32_t> unmodelled;
};

/// Facts about a graph that do not depend on sizes and numbers: the same for all graphs that differ
/// only in these, such as other batches of one model.
struct LoweringFacts {
  struct Node {
    const OpRule* rule = nullptr;  ///< only for ops that touch GPU memory
    std::int32_t partner = -1;     ///< see forward_partners
    bool touches_gpu = false;
    bool reaches_gpu = false;       ///< it or a node below it touches GPU memory
    bool is_known = false;          ///< has a rule, a row of the op catalogue, or is a label
    bool launches_nothing = false;  ///< see OpRule
    bool has_odd_type = false;      ///< see has_odd_type; only for nodes with a rule
    std::uint64_t devices_key = 0;  ///< key of TemplateLevel::kDevices
    LaunchTemplates::Found found;   ///< on the levels without shapes
  };

  std::vector<Node> nodes;
  ParsedSchemas schemas;  ///< only nodes with a rule have theirs here

  /// `templates` may be nullptr; it, the graph and the rules must outlive the facts.
  static LoweringFacts of(const ExecutionGraph& graph, const LaunchTemplates* templates,
                          const OpRuleRegistry& rules = OpRuleRegistry::builtin());
};

/// The answers from which the calls of a graph's nodes came, node by node. The calls stay the same
/// in other sizes if these answers do.
struct LoweringNotes {
  struct Asked {
    std::int32_t node = -1;
    bool asks_rule = false;  ///< its rule may launch kernels
    bool rule_spoke = false;
    std::size_t kernels = 0;  ///< number of kernels that its rule gave
    LaunchTemplates::Found found;
  };
  struct Kernel {
    KernelFamily family = KernelFamily::kSmall;
    std::size_t shape = 0;  ///< index of the work's shape
    const TemplateCall* call = nullptr;

    bool operator==(const Kernel&) const = default;
  };
  std::vector<Asked> nodes;
  std::vector<Kernel> kernels;  ///< node by node
  bool complete = true;         ///< false: something else mattered, too
};

/// Turns nodes into host calls and kernels. Without a template the op's rule gives all. Templates
/// of the same program and machine (`kCallsAndWork`) fix number, order, kind and stream of the
/// calls; the rule fixes the work and gives it to the node's main kernel(s); kernels that only the
/// template knows are small and `inferred`. Templates of another program (`kCalls`) neither add nor
/// remove work where a rule knows it, nor move it to another stream: they add the synchronising
/// calls, and the launches of ops that no rule knows.
class Lowering {
 public:
  /// `templates` may be nullptr. All references must outlive the lowering.
  Lowering(const ExecutionGraph& graph, const Gpu& gpu, const LaunchTemplates* templates,
           const OpRuleRegistry& rules = OpRuleRegistry::builtin(),
           TemplateUse use = TemplateUse::kCallsAndWork);
  /// Uses the facts of the graph (or of one that differs only in sizes) and these templates.
  Lowering(const ExecutionGraph& graph, const Gpu& gpu, const LaunchTemplates* templates,
           const LoweringFacts& facts, TemplateUse use);

  /// `node` with everything below it.
  LoweredOp lower(std::int32_t node);
  /// The same into `op`, whose memory is reused.
  void lower(std::int32_t node, LoweredOp& op);

  const LoweringStats& stats() const { return stats_; }

  /// From now on writes down what the calls come from; `notes` must outlive the lowering. Only with
  /// TemplateUse::kCalls.
  void write_notes(LoweringNotes& notes) { notes_ = &notes; }
  /// Appends the work of the kernels of all nodes in the notes. `reshaped`: per node, whether its
  /// tensors may have other shapes than when the notes were written; null: all may. False: the
  /// calls of a node are others now.
  bool repeat(const LoweringNotes& notes, const std::vector<bool>* reshaped,
              std::vector<KernelWork>& work);

 private:
  void add_node(std::int32_t index, LoweredOp& op);
  /// False: the node's own launches are unknown.
  bool own_calls(std::int32_t index, LoweredOp& op, std::vector<LoweredCall>& calls);
  bool is_blind(std::int32_t index, std::span<const LoweredCall> below) const;
  LoweringNotes::Kernel note_of(const KernelWork& work) const;
  void note(std::int32_t index, bool rule_spoke, const LaunchTemplates::Found& found);
  bool ask_rule(std::int32_t index, const LoweringFacts::Node& facts);
  LaunchTemplates::Found find_template(std::int32_t index, const LoweringFacts::Node& facts,
                                       bool rule_spoke) const;
  std::int32_t label_that_launches(const Node& record) const;
  std::int32_t label_of_collective(std::int32_t record) const;
  void calls_of_template(std::int32_t index, const LaunchTemplate& list, bool rule_spoke,
                         LoweredOp& op, std::vector<LoweredCall>& calls);
  void calls_of_rule(std::int32_t index, LoweredOp& op, std::vector<LoweredCall>& calls);
  bool calls_of_another_program(std::int32_t index, const LaunchTemplates::Found& found,
                                bool rule_spoke, LoweredOp& op, std::vector<LoweredCall>& calls);

  const ExecutionGraph& graph_;
  const Gpu& gpu_;
  const LaunchTemplates* templates_;
  LoweringFacts own_facts_;
  const LoweringFacts& facts_;
  TemplateUse use_;
  std::vector<KernelWork> kernels_;        // scratch
  std::vector<std::size_t> kernel_calls_;  // scratch
  std::int32_t launching_label_ = -1;      // label of the last lowered collective's record
  std::vector<KernelWork> label_work_;     // launched by that label
  LoweringStats stats_;
  LoweringNotes* notes_ = nullptr;
};

/// The calls that a label makes itself, between its children.
std::vector<LoweredCall> lower_label(const ExecutionGraph& graph, std::int32_t node,
                                     const LaunchTemplates* templates, LoweringStats& stats);

}  // namespace perfmodel
