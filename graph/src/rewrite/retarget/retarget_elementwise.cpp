#include "builders/emit/dropout.hpp"
#include "builders/emit/graph_views.hpp"
#include "builders/emit/loss.hpp"
#include "builders/emit/memory.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {
namespace {

// The kernels exist on both devices; what a CPU does inside is its own affair.
void leaf(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  rewrite.leave_out_children(node);
}

// A reduction works on a view of its result with all axes; a CPU fills that first, and its mean is
// a sum that is divided. Of an op with two overloads the first one calls the second.
void reduction(Retargeter& rewrite, std::int32_t node) {
  const bool part_of_mean =
      rewrite.name(node) == "aten::sum" && rewrite.parent_name(node) == "aten::mean";
  if (!part_of_mean) rewrite.copy(node);
  for (std::int32_t child : rewrite.children(node)) {
    const std::string_view name = rewrite.name(child);
    const bool stays = name == rewrite.name(node) || name == "aten::as_strided" ||
                       (name == "aten::sum" && rewrite.name(node) == "aten::mean");
    if (!stays) rewrite.leave_out(child);
  }
}

// A number is compared and moved lazily; neither happens on a GPU without complex tensors.
void disappear(Retargeter& rewrite, std::int32_t node) { rewrite.leave_out(node); }

// Small tensors are set to zero at once on a CPU, by a kernel on a GPU.
void zero_of_any_size(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  if (!rewrite.given(node, 0)) return;  // sparse: drops its entries
  rewrite.leave_out_children(node);
  fill(rewrite.graph(), rewrite.input_tensor(node, 0), 0);
}

// empty_like, bernoulli_, div_, mul on a CPU; one kernel and a mask of bytes on a GPU.
void dropout(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  const std::int32_t product = rewrite.child(node, "aten::mul");
  if (product < 0) return;  // nothing is dropped, or in place: the same ops on both devices
  rewrite.leave_out_children(node);
  const std::int64_t sequence = rewrite.source().node(node).seq_id;
  const double probability = rewrite.real(node, 1);
  const Retargeter::Start start = rewrite.start();
  const Dropped dropped =
      native_dropout(rewrite.graph(), rewrite.input_tensor(node, 0), probability, sequence);
  rewrite.adopt_outputs(start, node);
  rewrite.dropouts[sequence] = {dropped.mask, probability};
  rewrite.rename_backward(sequence, "NativeDropoutBackward0");
}

// The product with the mask of a dropout becomes its backward op.
void multiply(Retargeter& rewrite, std::int32_t node) {
  const std::int32_t function = rewrite.source().node(node).parent;
  const auto dropped = function < 0 || rewrite.source().node(function).scope != Scope::kBackward
                           ? rewrite.dropouts.end()
                           : rewrite.dropouts.find(rewrite.source().node(function).seq_id);
  if (dropped == rewrite.dropouts.end()) return rewrite.copy(node);
  rewrite.leave_out(node);
  rewrite.continue_beside(node);
  const Retargeter::Start start = rewrite.start();
  native_dropout_backward(rewrite.graph(), rewrite.input_tensor(node, 0), dropped->second.mask,
                          dropped->second.probability);
  rewrite.adopt_outputs(start, node);
}

// The total weight is made empty and gets its size in the op.
void nll_loss_forward(Retargeter& rewrite, std::int32_t node) {
  rewrite.copy(node);
  rewrite.leave_out_children(node);
  if (!rewrite.output_entry(node, 1)) return;
  const TensorRef weight = rewrite.output_tensor(node, 1);
  resize_to(rewrite.graph(), weight, weight);
}

void binary_cross_entropy_gradient(Retargeter& rewrite, std::int32_t node) {
  if (rewrite.given(node, 3) || rewrite.integer(node, 4) != 1) return rewrite.copy(node);
  rewrite.leave_out(node);
  rewrite.continue_beside(node);
  const Retargeter::Start start = rewrite.start();
  binary_cross_entropy_backward(rewrite.graph(), rewrite.input_tensor(node, 0),
                                rewrite.input_tensor(node, 1), rewrite.input_tensor(node, 2));
  rewrite.adopt_outputs(start, node);
}

// What a CPU keeps for the backward pass is empty on a GPU.
void log_sigmoid_forward(Retargeter& rewrite, std::int32_t node) {
  rewrite.leave_out(node);
  rewrite.leave_out_children(node);
  rewrite.continue_beside(node);
  GraphBuilder& graph = rewrite.graph();
  const TensorRef made = rewrite.output_tensor(node, 0);
  graph.leaf_op("aten::log_sigmoid_forward", {rewrite.input_tensor(node, 0)},
                {made, graph.new_tensor(graph.dtype(made), {0})});
}

}  // namespace

std::span<const NamedRetargetRule> elementwise_retarget_rules() {
  static constexpr NamedRetargetRule kRules[] = {
      {"disappear", disappear},
      {"reduction", reduction},
      {"leaf", leaf},
      {"zero_of_any_size", zero_of_any_size},
      {"dropout", dropout},
      {"multiply", multiply},
      {"nll_loss_forward", nll_loss_forward},
      {"log_sigmoid_forward", log_sigmoid_forward},
      {"binary_cross_entropy_gradient", binary_cross_entropy_gradient},
  };
  return kRules;
}

}  // namespace perfmodel
