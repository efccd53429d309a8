#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "builders/emit/foreach.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/update.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite/change_tensors.hpp"
#include "rewrite/graph_edit.hpp"
#include "rewrite/optimizer/optimizer_writer.hpp"
#include "step/parameter_gradients.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

Unexpected refuse_gradient_type(std::string message) {
  return fail(ErrorCode::kImpossible, "grad-dtype: " + std::move(message));
}

/// A gradient that is to be kept in another type; into ExecutionGraph::tensors.
struct RetypedGradient {
  std::int64_t read = -1;  ///< as the optimizer takes it
  std::int64_t weight = -1;
};

/// By AccumulateGrad node.
using RetypedGradients = std::map<std::int32_t, RetypedGradient>;

Result<RetypedGradients> find_gradients(const StepView& step, const OptimizerSteps& optimizers,
                                        DType dtype) {
  const ExecutionGraph& graph = step.graph();
  FactsOfValues<std::int32_t> keeper(step.tensors(), -1);  // AccumulateGrad of a gradient
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    if (!step.parameter_gradients()[i]) continue;
    if (const auto kept = kept_gradient(graph, graph.node(i))) keeper[graph.tensors[*kept]] = i;
  }
  RetypedGradients found;
  for (const ReadUpdate& update : updates_of(optimizers)) {
    const Tensor& gradient = graph.tensors[update.gradient];
    if (update.sparse) {
      return refuse_gradient_type("expected dense gradients, found a sparse one");
    }
    if (!gradient.on_gpu()) {
      return refuse_gradient_type("expected gradients on a GPU, found one on a CPU");
    }
    if (gradient.dtype == dtype) continue;
    if (keeper[gradient] < 0) {
      return refuse_gradient_type(fmt::format(
          "expected gradients as AccumulateGrad keeps them, found one of [{}] that something else "
          "makes",
          fmt::join(graph.shape(gradient), ", ")));
    }
    found[keeper[gradient]] = {.read = update.gradient,
                               .weight = update.weight >= 0 ? update.weight : update.parameter};
  }
  return found;
}

class GradientWriter {
 public:
  GradientWriter(const StepView& step, DType dtype, const RetypedGradients& gradients)
      : graph_(step.graph()),
        dtype_(dtype),
        gradients_(gradients),
        edit_(graph_, step.dialect()),
        builder_(edit_.builder()),
        buffer_of_(step.tensors()),
        kept_(step.tensors()),
        mention_(step.tensors()) {}

  Result<ExecutionGraph> write(const OptimizerSteps& optimizers) {
    make_buffers();
    bool are_zeroed = buffers_.empty();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (buffers_.empty() || !is_zero_grad(graph_, i)) continue;
      are_zeroed = true;
      edit_.follow_tree(i, [this, i] {
        edit_.copy().close_to(i);
        foreach_zero_(builder_, buffers_, -1);
      });
    }
    if (!are_zeroed) {
      return refuse_gradient_type(
          "expected Optimizer.zero_grad#..., where buffers in a wider type are emptied, found "
          "none");
    }
    for (const auto& [label, step] : optimizers) {
      edit_.refill(label,
                   [this, &step = step] { write_optimizer_step(edit_.copy(), step, &kept_); });
    }
    for (const auto& [node, gradient] : gradients_) {
      edit_.follow_tree(node, [this, &gradient = gradient, node = node] { keep(node, gradient); });
    }
    edit_.on_each_copy([this](std::int32_t index, const Node& copy) {
      const auto keeps = [this](std::int32_t i) {
        return gradients_.contains(i) || is_zero_grad(graph_, i);
      };
      if (keeps_any_ && graph_.find_around(index, keeps) < 0) read_kept(copy);
    });
    return edit_.write();
  }

 private:
  // They are there from step to step, one per parameter.
  void make_buffers() {
    for (const auto& [node, gradient] : gradients_) {
      const Tensor& read = graph_.tensors[gradient.read];
      TensorRef& buffer = buffer_of_[graph_.tensors[gradient.weight]];
      if (size_in_bytes(dtype_) <= read.item_size || buffer.exists()) continue;
      const auto shape = graph_.shape(read);
      buffer = builder_.new_tensor(dtype_, read.device, {shape.begin(), shape.end()});
      buffers_.push_back(buffer);
    }
  }

  void keep(std::int32_t accumulate, const RetypedGradient& gradient) {
    edit_.copy().close_to(accumulate);
    const Tensor& read = graph_.tensors[gradient.read];
    const TensorRef came = builder_.tensor_of_source(static_cast<std::uint32_t>(gradient.read));
    TensorRef& kept = kept_[read];
    if (size_in_bytes(dtype_) > read.item_size) {
      kept = buffer_of_[graph_.tensors[gradient.weight]];
      add_(builder_, kept, came);
    } else {
      kept = to_dtype(builder_, came, dtype_);
    }
    mention_[read] = builder_.tensor_argument(kept).index;
    keeps_any_ = true;
  }

  // Ops that scale, clip or check gradients before the optimizer read the kept ones.
  void read_kept(const Node& copy) {
    ExecutionGraph& made = edit_.made();
    change_tensors(made, copy, [&](Tensor& tensor) {
      const Tensor& recorded = graph_.tensors[&tensor - made.tensors.data()];
      if (!kept_[recorded].exists()) return;
      const Tensor& by = made.tensors[mention_[recorded]];
      tensor.id = by.id;
      tensor.storage_id = by.storage_id;
      tensor.offset = by.offset;
      tensor.dtype = by.dtype;
      tensor.item_size = by.item_size;
    });
  }

  const ExecutionGraph& graph_;
  const DType dtype_;
  const RetypedGradients& gradients_;
  GraphEdit edit_;
  GraphBuilder& builder_;
  std::vector<TensorRef> buffers_;
  FactsOfValues<TensorRef> buffer_of_;    // by weight
  FactsOfValues<TensorRef> kept_;         // instead of a gradient
  FactsOfValues<std::uint32_t> mention_;  // by kept gradient: its index among the tensors of the
                                          // new graph
  bool keeps_any_ = false;
};

}  // namespace

Result<ExecutionGraph> rewrite_gradient_type(const ExecutionGraph& graph, DType dtype) {
  constexpr std::array kTypes = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};
  if (std::ranges::find(kTypes, dtype) == kTypes.end()) {
    return refuse_gradient_type(
        fmt::format("expected fp32, bf16 or fp16, found {}", to_string(dtype)));
  }
  const StepView step(graph);
  if (auto good = step.check("grad-dtype", {.no_collectives = true, .one_pass = true}); !good) {
    return Unexpected{good.error()};
  }
  const auto& optimizers = step.optimizers();
  if (!optimizers) return Unexpected{optimizers.error()};
  if (optimizers->empty()) {
    return refuse_gradient_type("expected a node Optimizer.step#..., found none in the graph");
  }
  PERFMODEL_TRY(gradients, find_gradients(step, *optimizers, dtype));
  if (gradients->empty()) return graph;
  return GradientWriter(step, dtype, *gradients).write(*optimizers);
}

}  // namespace perfmodel
