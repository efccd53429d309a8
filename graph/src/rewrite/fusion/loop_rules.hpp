#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "loop_builder.hpp"

namespace perfmodel {

/// "native_layer_norm" of "aten::native_layer_norm", "relu" of "aten::relu_".
std::string_view bare_op_name(std::string_view name);
/// The tensor, if it has elements on a GPU; else null.
const Tensor* data_of(const Tensor* tensor);
std::vector<const Tensor*> data_of(const ExecutionGraph& graph,
                                   std::span<const Argument> arguments);

/// Notes the order of a view's results in the tensor that it views.
void follow_view(LoopBuilder& loops, std::int32_t node);
/// Whether autocast calls the op of this node once more, below it, after its casts.
bool dispatches_again(const ExecutionGraph& graph, std::int32_t node);

/// Writes the loops and library calls of a node and of those below it, as PyTorch 2's
/// decompositions (torch/_decomp) and Inductor's lowerings make them: norms, softmax and losses
/// become reductions and pointwise loops, views and allocations nothing, products, convolutions,
/// attention, sorts and ops that are not in the catalogue library calls.
class LoopRules {
 public:
  /// `inside`: by node; others are left out. Null: none is.
  explicit LoopRules(const StepView& step, const std::vector<bool>* inside = nullptr)
      : graph_(step.graph()), loops_(step), inside_(inside) {}

  void read(std::int32_t node);

  LoopBuilder& loops() { return loops_; }

 private:
  /// A norm of the forward pass: its backward pass reads what it computed.
  struct Norm {
    std::int32_t mean = -1, normalized = -1, scale = -1;  // values
  };

  // Data that a node takes and gives; null: none at that position.
  const Tensor* in(std::int32_t node, std::size_t at = 0) const;
  const Tensor* out(std::int32_t node, std::size_t at = 0) const;
  /// Loops with the name of the node's op: over `rows` elements, or with a result for each of
  /// `rows` times `columns` elements.
  LoopOp loop(std::int32_t node, std::vector<LoopRead> reads, std::int64_t rows) const;
  LoopOp op_of(LoopKind kind, std::int32_t node, std::vector<LoopRead> reads, std::int64_t rows,
               std::int64_t columns) const;
  /// Adds an op that makes a value that no node mentions.
  void add_to(std::int32_t value, LoopOp op);

  bool read_by_name(std::int32_t node);
  void read_below(std::int32_t node);
  void view(std::int32_t node);
  void given_or_cast(std::int32_t node);
  void convolution(std::int32_t node);
  void pointwise(std::int32_t node);
  void join(std::int32_t node, const Tensor& result);
  void copy(std::int32_t node, const Tensor& from, const Tensor& to);
  void gather(std::int32_t node);
  void scatter(std::int32_t node);
  void reduce(std::int32_t node);
  void library(std::int32_t node);
  void dropout(std::int32_t node);
  void norm(std::int32_t node);
  void norm_backward(std::int32_t node);
  void batch_norm(std::int32_t node);
  void batch_norm_backward(std::int32_t node);
  void softmax(std::int32_t node);
  void softmax_backward(std::int32_t node);
  void nll_loss(std::int32_t node);
  void nll_loss_backward(std::int32_t node);
  void embedding_backward(std::int32_t node);

  const ExecutionGraph& graph_;
  LoopBuilder loops_;
  const std::vector<bool>* inside_;
  std::vector<Norm> norms_;
};

}  // namespace perfmodel
