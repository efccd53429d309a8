#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "perfmodel/graph/detail/retarget_options.hpp"
#include "retarget_placement.hpp"
#include "rewrite/graph_copy.hpp"

namespace perfmodel {

class Retargeter;
/// Writes how a node and what stands below it look on a GPU. Nodes below that the rule neither
/// copies nor leaves out are visited on their own afterwards.
using RetargetRule = void (*)(Retargeter&, std::int32_t node);
struct NamedRetargetRule {
  std::string_view name;  ///< as rows of the op catalogue ask for it
  RetargetRule rule;
};

/// The copy under way, as the rules see it: nodes are those of the placed CPU graph.
class Retargeter {
 public:
  Retargeter(const Placement& placement, const PyTorch& pytorch, const RetargetOptions& options);

  /// Fails where an op does not have a tensor that its rule asks for.
  Result<ExecutionGraph> run();

  const ExecutionGraph& source() const { return copy_.source(); }
  GraphBuilder& graph() { return copy_.builder(); }
  bool amd() const { return options_.vendor == RetargetOptions::Vendor::kAmd; }

  std::string_view name(std::int32_t index) const { return source().name(index); }
  std::string_view parent_name(std::int32_t index) const;
  std::span<const std::int32_t> children(std::int32_t index) const {
    return source().children(index);
  }
  std::int32_t child(std::int32_t index, std::string_view name) const;  ///< -1: none
  bool on_host(std::int32_t index) const { return placement_.on_host[index]; }

  const Tensor* input_entry(std::int32_t index, std::size_t position) const;
  const Tensor* output_entry(std::int32_t index, std::size_t position) const;
  bool given(std::int32_t index, std::size_t position) const;  ///< a tensor that is defined
  std::int64_t integer(std::int32_t index, std::size_t position) const;  ///< flags too
  double real(std::int32_t index, std::size_t position) const;

  /// Arguments of the source for use in new nodes.
  Value input(std::int32_t index, std::size_t position);
  /// Where the op has no such tensor, or one of another rank than is given, any other one: the
  /// whole rewrite fails then.
  TensorRef input_tensor(std::int32_t index, std::size_t position, std::optional<int> rank = {});
  TensorRef output_tensor(std::int32_t index, std::size_t position);
  Value value(const Argument& argument);
  TensorRef tensor(const Argument& argument);

  void copy(std::int32_t index) { copy_.copy(index); }
  void leave_out(std::int32_t index) { left_out_[index] = true; }
  void bring_back(std::int32_t index) { left_out_[index] = false; }
  void leave_out_children(std::int32_t index);
  /// Copies what stands below a node as it is.
  void keep_tree(std::int32_t index) { verbatim_[index] = true; }

  /// New nodes go under the copy of this node, behind what is there.
  void continue_in(std::int32_t index) { copy_.close_to(index); }
  /// New nodes go under the copy of this node's parent.
  void continue_beside(std::int32_t index) { copy_.close_beside(index); }
  /// What an emission function wrote from `start` on gave tensors of its own: the results of its
  /// first node get the ids of the source node's results, by which later nodes know them.
  struct Start {
    std::size_t node, tensor;
  };
  Start start() {
    const ExecutionGraph& made = graph().graph_being_made();
    return {made.nodes.size(), made.tensors.size()};
  }
  void adopt_outputs(Start start, std::int32_t source_node);

  /// The backward function of the forward op with this sequence number has another name.
  void rename_backward(std::int64_t sequence, std::string name) {
    if (sequence >= 0) renamed_[sequence] = std::move(name);  // none under no_grad
  }

  /// What forward rules keep for their backward functions, by sequence number.
  struct Dropout {
    TensorRef mask;
    double probability;
  };
  struct Attention {
    TensorRef seed, offset;
  };
  struct Bag {
    TensorRef offset_to_bag, bag_size, maximum_indices;
  };
  std::unordered_map<std::int64_t, Dropout> dropouts;
  std::unordered_map<std::int64_t, Attention> attentions;
  std::unordered_map<std::int64_t, Bag> bags;
  std::unordered_map<std::int64_t, TensorRef> norm_reserves;

 private:
  TensorRef missing(std::int32_t index, std::string_view expected);
  void visit(std::int32_t index);
  bool handle_backward(std::int32_t index);
  void note_strides(std::int32_t index);
  void find_copies();
  void write_inputs(std::int32_t index);
  void write_input(const StepInput& input, std::int32_t before);
  void rename_tensor(Start start, const Tensor& made, const Tensor& as);

  const Placement& placement_;
  const RetargetOptions& options_;
  GraphCopy copy_;
  std::optional<Error> error_;
  std::vector<bool> left_out_, verbatim_;
  std::unordered_map<std::int64_t, std::string> renamed_;
  std::unordered_map<std::int64_t, Shape> strides_;  // of views, by tensor id
  std::unordered_map<std::int32_t, std::vector<StepInput>> copies_before_;  // by node
  std::unordered_map<std::int32_t, StepInput> moved_by_program_;            // `x.to(device)`
};

std::span<const NamedRetargetRule> elementwise_retarget_rules();
std::span<const NamedRetargetRule> matmul_retarget_rules();
std::span<const NamedRetargetRule> convolution_retarget_rules();
std::span<const NamedRetargetRule> norm_retarget_rules();
std::span<const NamedRetargetRule> embedding_retarget_rules();
std::span<const NamedRetargetRule> index_retarget_rules();
std::span<const NamedRetargetRule> foreach_retarget_rules();
std::span<const NamedRetargetRule> attention_retarget_rules();

}  // namespace perfmodel
