#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "perfmodel/graph/detail/retarget_options.hpp"
#include "retarget_placement.hpp"
#include "rewrite/graph_edit.hpp"
#include "step/tensor_arguments.hpp"

namespace perfmodel {

class Retargeter;

/// Tensors that a forward op on a GPU keeps for its backward function, which may have another name
/// there.
struct KeptForBackward {
  std::string function;
  std::vector<TensorRef> tensors = {};
  double probability = 0;
};

/// An op of the CPU graph, with the changes that its rule asks for. Without any, the op stays and
/// the rules look at the ops below it.
class CpuOp {
 public:
  using Write = std::function<void(GraphBuilder&)>;

  CpuOp(Retargeter& rewrite, std::int32_t node) : rewrite_(&rewrite), node_(node) {}
  CpuOp at(std::int32_t node) const { return {*rewrite_, node}; }

  const ExecutionGraph& source() const;
  GraphEdit& edit() const;
  bool amd() const;

  std::int32_t node() const { return node_; }
  std::int32_t parent() const { return source().node(node_).parent; }
  std::string_view name() const { return source().name(node_); }
  std::string_view parent_name() const { return parent() < 0 ? "" : source().name(parent()); }
  std::int64_t sequence() const { return source().node(node_).seq_id; }
  std::span<const std::int32_t> children() const { return source().children(node_); }
  std::int32_t child(std::string_view name) const;  ///< -1: none
  std::span<const Argument> inputs() const { return source().inputs(node_); }

  const Tensor* input(std::size_t at) const { return input_at(source(), node_, at); }
  const Tensor* output(std::size_t at) const { return output_at(source(), node_, at); }
  bool given(std::size_t at) const { return input(at) && input(at)->storage_id != 0; }
  std::int64_t integer(std::size_t at) const {  ///< flags too
    return at < inputs().size() ? inputs()[at].integer : 0;
  }
  double real(std::size_t at) const { return at < inputs().size() ? inputs()[at].real : 0; }

  // For new nodes.

  Value argument(std::size_t at) const;
  Value value(const Argument& argument) const;
  /// Where the op has no such tensor, or one of another rank than is given, any other one: the
  /// whole rewrite fails then.
  TensorRef tensor(std::size_t at, std::optional<int> rank = {}) const;
  TensorRef tensor(const Argument& argument) const;
  TensorRef result(std::size_t at) const;
  /// A sparse tensor, which stays the same one with its indices and values as long as its id does.
  TensorRef sparse(const Argument& argument) const;
  /// The same of one that the step has given indices and values.
  TensorRef filled_sparse(std::size_t at) const;

  void leave_out() const;
  /// Leaves out the children with other names than these.
  void keep_children(std::initializer_list<std::string_view> names) const;
  /// Writes other nodes in the op's place. The results of the first node replace the op's results.
  void replace(Write write) const;
  /// Keeps the op and writes other nodes below it than those that are there.
  void refill(Write write) const;
  /// Calls an emission function that gives tensors of its own. The results of the first node that
  /// it writes get the ids of the op's results, by which later nodes know them.
  void write_as(const Write& write) const;

  /// Opens what this op keeps for its backward function; the rule fills it in as it writes the op.
  KeptForBackward& keep(std::string function) const;
  /// Finds what is kept for the function around this op if that has this name; null: nothing is.
  const KeptForBackward* kept_around(std::string_view function) const;

 private:
  TensorRef missing(std::string_view expected) const;
  std::vector<std::int32_t> saved(bool results) const;
  void write_saved(std::size_t position, bool results) const;

  Retargeter* rewrite_;
  std::int32_t node_;
};

/// Says how an op and the ops below it look on a GPU.
using RetargetRule = void (*)(const CpuOp&);

class Retargeter {
 public:
  Retargeter(const StepView& step, const Placement& placement, const PyTorch& pytorch,
             const RetargetOptions& options);

  /// Fails where an op does not have a tensor that its rule asks for.
  Result<ExecutionGraph> run();

 private:
  friend CpuOp;

  const ExecutionGraph& source() const { return edit_.source(); }
  void plan(const CpuOp& op);
  void plan_inputs();
  void rename_function(std::int32_t node, Node& made);
  void rename_tensor(std::size_t first_entry, const Tensor& made, const Tensor& as);
  void write_input(const StepInput& input, std::int32_t before);

  const Placement& placement_;
  const RetargetOptions& options_;
  GraphEdit edit_;
  std::optional<Error> error_;
  std::vector<bool> settled_;  // by node: no rule looks at it or below it
  std::unordered_map<std::int64_t, KeptForBackward> kept_;  // by autograd's number
  FactsOfValues<Shape> strides_;                            // for views and tensors made from them
  std::unordered_map<std::int64_t, TensorRef> sparse_;      // by id of the source
};

/// The rule of an op that a capture recorded as one node although its kernel calls others; null:
/// there is none, or a rule below does it. It may find the children that autograd made.
RetargetRule find_bare_rule(const CpuOp& op);

// Rules of lookups, sparse gradients and factories.
using BareRules = std::unordered_map<std::string_view, RetargetRule>;
const BareRules& bare_table_rules();
const BareRules& bare_factory_rules();

void fill_convolution(const CpuOp& op);

// The rules by the families of ops.

void retarget_reduction(const CpuOp& op);
void retarget_zero(const CpuOp& op);
void retarget_dropout(const CpuOp& op);
void retarget_softmax_gradient(const CpuOp& op);
void retarget_product_with_mask(const CpuOp& op);
void retarget_nll_loss(const CpuOp& op);
void retarget_log_sigmoid(const CpuOp& op);
void retarget_binary_cross_entropy_gradient(const CpuOp& op);

void retarget_product_with_bias(const CpuOp& op);
void retarget_attention(const CpuOp& op);
void retarget_attention_gradient(const CpuOp& op);
void retarget_foreach(const CpuOp& op);

void retarget_convolution(const CpuOp& op);
void retarget_mkldnn_convolution(const CpuOp& op);
void retarget_convolution_gradient(const CpuOp& op);

void retarget_batch_norm(const CpuOp& op);
void retarget_batch_norm_gradient(const CpuOp& op);
void retarget_layer_norm_gradient(const CpuOp& op);

void retarget_index_select(const CpuOp& op);
void retarget_index_put(const CpuOp& op);
void retarget_embedding_gradient(const CpuOp& op);
void retarget_embedding_bag(const CpuOp& op);
void retarget_embedding_bag_gradient(const CpuOp& op);
void retarget_sparse_sum(const CpuOp& op);
void retarget_coalesce(const CpuOp& op);
void retarget_sparse_tensor(const CpuOp& op);
void retarget_sparse_mask(const CpuOp& op);

}  // namespace perfmodel
