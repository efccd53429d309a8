#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {

/// Names of parameters by the node's `op_schema`.
using ParsedSchemas = std::unordered_map<NameId, std::vector<std::string_view>>;

/// One node of a graph as a rule sees it.
struct OpView {
  const ExecutionGraph& graph;
  const Node& node;
  const Node* forward = nullptr;  ///< the forward op of a backward node's sequence number, if any
  /// Parameter names of schemas that are already parsed; null: none. See parameter_names.
  const ParsedSchemas* schemas = nullptr;
  std::optional<bool> has_odd_type = {};  ///< see has_odd_type, if already known

  std::string_view name() const { return graph.name(node); }
  std::span<const Argument> inputs() const { return graph.inputs(node); }
  std::span<const Argument> outputs() const { return graph.outputs(node); }

  /// The i-th input if it is a tensor with storage, else nullptr.
  const Tensor* tensor_input(std::size_t i) const;
  const Tensor* tensor_output(std::size_t i) const;
  std::span<const std::int64_t> shape(const Tensor& tensor) const { return graph.shape(tensor); }
};

/// Names of the parameters of a recorded schema, in their order; none without a schema. They point
/// into the text.
std::vector<std::string_view> parameter_names(std::string_view schema);

/// Says which kernels one node launches itself (not its children's) and how much work
/// each does. A rule covers one op family; it is asked only for nodes that touch GPU memory.
class OpRule {
 public:
  virtual ~OpRule() = default;

  /// Whether the node launches nothing, whatever its sizes: it hands on to a child, or is a view.
  virtual bool launches_nothing(const OpView& op) const = 0;

  /// Appends the node's kernels in launch order. Nothing appended = the node launches none.
  /// Returns false if the rule does not expect the node's arguments or know the work of their
  /// element types: the op then counts as unmodelled and is listed.
  bool lower(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) const {
    return launches_nothing(op) || add_kernels(op, gpu, kernels);
  }
  /// The same for a node of which it is known that it launches something.
  virtual bool add_kernels(const OpView& op, const Gpu& gpu,
                           std::vector<KernelWork>& kernels) const = 0;
};

/// Rules by op name.
class OpRuleRegistry {
 public:
  /// Every rule of `predictors/src/ops`, listed in `builtin_op_rules.cpp`.
  static const OpRuleRegistry& builtin();

  void add(std::vector<std::string> op_names, std::unique_ptr<OpRule> rule);

  /// For names with a free part, such as "nccl:" or the autograd nodes of FBGEMM's optimizers.
  /// Asked in the order added, after the exact names.
  void add_prefix(std::string prefix, std::unique_ptr<OpRule> rule);

  /// For the nodes of PyTorch's own derivatives, "MulBackward0"; asked last.
  void set_autograd(std::unique_ptr<OpRule> rule);

  /// For ops of libraries whose names tell a collective, "vllm::all_reduce".
  void set_collectives(std::unique_ptr<OpRule> rule);

  /// nullptr for an op without a rule. `aten::foo.out` and in-place `aten::foo_` are looked up as
  /// written: a rule lists the spellings that it covers. Triton kernels, whose names mean nothing,
  /// are looked up as "triton".
  const OpRule* find(std::string_view op_name) const;

  /// Number of exact names.
  std::size_t size() const { return by_name_.size(); }

 private:
  std::vector<std::unique_ptr<OpRule>> rules_;
  std::deque<std::string> names_;  // stable addresses under the keys
  std::unordered_map<std::string_view, const OpRule*> by_name_;
  std::vector<std::pair<std::string, const OpRule*>> by_prefix_;
  const OpRule* autograd_ = nullptr;
  const OpRule* collectives_ = nullptr;
};

}  // namespace perfmodel
