#include "builders/emit/dropout.hpp"
#include "builders/emit/graph_views.hpp"
#include "builders/emit/loss.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/softmax.hpp"
#include "retarget_rules.hpp"

namespace perfmodel {

// A reduction works on a view of its result with all axes; a CPU fills that first, and its mean is
// a sum that is divided. If an op has two overloads, the first one calls the second.
void retarget_reduction(const CpuOp& op) {
  const std::string_view name = op.name();
  if (name == "aten::sum" && op.parent_name() == "aten::mean") op.edit().unwrap(op.node());
  op.keep_children({name, "aten::as_strided", name == "aten::mean" ? "aten::sum" : name});
}

// Small tensors are set to zero at once on a CPU, by a kernel on a GPU.
void retarget_zero(const CpuOp& op) {
  if (!op.given(0)) return;  // sparse: drops its entries
  op.refill([op](GraphBuilder& graph) { fill(graph, op.tensor(0), 0); });
}

// empty_like, bernoulli_, div_, mul on a CPU; one kernel and a mask of bytes on a GPU.
void retarget_dropout(const CpuOp& op) {
  // Nothing is dropped, or in place: the same ops on both devices.
  if (op.child("aten::mul") < 0) return;
  KeptForBackward& kept = op.keep("NativeDropoutBackward0");
  kept.probability = op.real(1);
  op.refill([op, &kept](GraphBuilder&) {
    op.write_as([&](GraphBuilder& graph) {
      const double probability = op.real(1);
      const TensorRef x = op.tensor(0);
      kept.tensors = {native_dropout(graph, x, probability, op.sequence()).mask};
    });
  });
}

// The product with the mask of a dropout becomes its backward op.
void retarget_product_with_mask(const CpuOp& op) {
  const KeptForBackward* kept = op.kept_around("NativeDropoutBackward0");
  if (!kept) return;
  op.replace([op, kept](GraphBuilder& graph) {
    native_dropout_backward(graph, op.tensor(0), kept->tensors[0], kept->probability);
  });
}

// The CPU multiplies inside its kernel.
void retarget_softmax_gradient(const CpuOp& op) {
  op.replace([op](GraphBuilder& graph) {
    softmax_backward(graph, op.tensor(0), op.tensor(1), static_cast<int>(op.integer(2)));
  });
}

// The total weight is made empty and gets its size in the op.
void retarget_nll_loss(const CpuOp& op) {
  op.refill([op](GraphBuilder& graph) {
    if (!op.output(1)) return;
    const TensorRef weight = op.result(1);
    resize_to(graph, weight, weight);
  });
}

void retarget_binary_cross_entropy_gradient(const CpuOp& op) {
  if (op.given(3) || op.integer(4) != 1) return;
  op.replace([op](GraphBuilder& graph) {
    binary_cross_entropy_backward(graph, op.tensor(0), op.tensor(1), op.tensor(2));
  });
}

// A tensor that a CPU keeps for the backward pass is empty on a GPU.
void retarget_log_sigmoid(const CpuOp& op) {
  op.replace([op](GraphBuilder& graph) {
    const TensorRef made = op.result(0);
    graph.leaf_op("aten::log_sigmoid_forward", {op.tensor(0)},
                  {made, graph.new_tensor(graph.dtype(made), {0})});
  });
}

}  // namespace perfmodel
