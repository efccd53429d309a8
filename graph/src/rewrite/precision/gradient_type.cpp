#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "builders/emit/foreach.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/update.hpp"
#include "core/parameter_gradients.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite/change_tensors.hpp"
#include "rewrite/graph_edit.hpp"
#include "rewrite/optimizer/optimizer_writer.hpp"
#include "step/dialect.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

Unexpected refuse_gradient_type(std::string message) {
  return fail(ErrorCode::kImpossible, "grad-dtype: " + std::move(message));
}

/// A gradient that is to be kept in another type.
struct RetypedGradient {
  std::int64_t read = -1;      // as the optimizer takes it; into ExecutionGraph::tensors
  std::int64_t parameter = 0;  // id of the model's weight
};

/// By AccumulateGrad node.
using RetypedGradients = std::map<std::int32_t, RetypedGradient>;

class GradientFinder {
 public:
  GradientFinder(const StepView& step, DType dtype)
      : graph_(step.graph()), dtype_(dtype), keeper_(step.tensors(), -1) {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (!step.parameter_gradients()[i]) continue;
      if (const auto kept = kept_gradient(graph_, graph_.node(i))) {
        keeper_[graph_.tensors[*kept]] = i;
      }
    }
  }

  Result<RetypedGradients> find(const std::map<std::int32_t, ReadStep>& steps) {
    for (const auto& [label, step] : steps) {
      for (const ReadGroup& group : step.groups) {
        for (const ReadUpdate& update : group.updates) {
          if (auto good = take(update); !good) return Unexpected{good.error()};
        }
      }
    }
    return std::move(found_);
  }

 private:
  Result<void> take(const ReadUpdate& update) {
    const Tensor& gradient = graph_.tensors[update.gradient];
    if (update.sparse) {
      return refuse_gradient_type("expected dense gradients, found a sparse one");
    }
    if (!gradient.on_gpu()) {
      return refuse_gradient_type("expected gradients on a GPU, found one on a CPU");
    }
    if (gradient.dtype == dtype_) return {};
    const std::int32_t keeper = keeper_[gradient];
    if (keeper < 0) {
      return refuse_gradient_type(fmt::format(
          "expected gradients as AccumulateGrad keeps them, found one of [{}] that something else "
          "makes",
          fmt::join(graph_.shape(gradient), ", ")));
    }
    const std::int64_t weight = update.weight >= 0 ? update.weight : update.parameter;
    found_[keeper] = {.read = update.gradient, .parameter = graph_.tensors[weight].id};
    return {};
  }

  const ExecutionGraph& graph_;
  const DType dtype_;
  FactsOfValues<std::int32_t> keeper_;  // of a gradient: its AccumulateGrad
  RetypedGradients found_;
};

class GradientWriter {
 public:
  GradientWriter(const ExecutionGraph& graph, DType dtype, const RetypedGradients& gradients,
                 const std::map<std::int32_t, ReadStep>& steps)
      : graph_(graph),
        dtype_(dtype),
        gradients_(gradients),
        edit_(graph, dialect_of(graph)),
        builder_(edit_.builder()) {
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
      if (zeroes(i)) edit_.follow_tree(i, [this, i] { zero_buffers(i); });
    }
    for (const auto& [label, step] : steps) {
      edit_.refill(label, [this, &step] { write_optimizer_step(edit_.copy(), step, {}, now_); });
    }
    for (const auto& [node, gradient] : gradients) {
      edit_.follow_tree(node, [this, &gradient, node = node] { keep(node, gradient); });
    }
    edit_.on_each_copy([this](std::int32_t index, const Node& copy) {
      const auto keeps = [this](std::int32_t i) { return gradients_.contains(i) || zeroes(i); };
      if (!by_.empty() && graph_.find_around(index, keeps) < 0) read_now(copy);
    });
  }

  Result<ExecutionGraph> write() {
    ExecutionGraph made = edit_.write();
    if (!buffers_.empty() && !zeroed_) {
      return refuse_gradient_type(
          "expected Optimizer.zero_grad#..., where buffers in a wider type are emptied, found "
          "none");
    }
    return made;
  }

 private:
  bool zeroes(std::int32_t node) const {
    return graph_.name(node).starts_with("Optimizer.zero_grad#");
  }

  // Buffers are there from step to step, one per parameter.
  TensorRef buffer_of(const RetypedGradient& gradient) {
    const auto at = buffers_.find(gradient.parameter);
    if (at != buffers_.end()) return at->second;
    const TensorRef read = source_tensor(gradient.read);
    const TensorRef made = builder_.new_tensor(dtype_, builder_.device(read), builder_.shape(read));
    return buffers_.emplace(gradient.parameter, made).first->second;
  }

  bool is_wider(const RetypedGradient& gradient) const {
    return size_in_bytes(dtype_) > graph_.tensors[gradient.read].item_size;
  }

  TensorRef source_tensor(std::int64_t index) {
    return builder_.tensor_of_source(static_cast<std::uint32_t>(index));
  }

  void zero_buffers(std::int32_t label) {
    std::vector<TensorRef> buffers;
    std::set<std::int64_t> seen;
    for (const auto& [node, gradient] : gradients_) {
      const bool is_first = is_wider(gradient) && seen.insert(gradient.parameter).second;
      if (is_first) buffers.push_back(buffer_of(gradient));
    }
    if (buffers.empty()) return;
    edit_.copy().close_to(label);
    foreach_zero_(builder_, buffers, -1);
    zeroed_ = true;
  }

  void keep(std::int32_t accumulate, const RetypedGradient& gradient) {
    edit_.copy().close_to(accumulate);
    const TensorRef came = source_tensor(gradient.read);
    TensorRef kept;
    if (is_wider(gradient)) {
      kept = buffer_of(gradient);
      add_(builder_, kept, came);
    } else {
      kept = to_dtype(builder_, came, dtype_);
    }
    now_[gradient.read] = kept;
    const Argument mention = builder_.tensor_argument(kept);
    by_[graph_.tensors[gradient.read].id] = builder_.graph_being_made().tensors[mention.index];
  }

  // What scales, clips or checks gradients in front of the optimizer takes those that are kept.
  void read_now(const Node& copy) {
    change_tensors(edit_.made(), copy, [this](Tensor& tensor) {
      const auto by = by_.find(tensor.id);
      if (by == by_.end()) return;
      tensor.id = by->second.id;
      tensor.storage_id = by->second.storage_id;
      tensor.offset = by->second.offset;
      tensor.dtype = by->second.dtype;
      tensor.item_size = by->second.item_size;
    });
  }

  const ExecutionGraph& graph_;
  const DType dtype_;
  const RetypedGradients& gradients_;
  GraphEdit edit_;
  GraphBuilder& builder_;
  std::map<std::int64_t, TensorRef> buffers_;  // by id of the weight
  bool zeroed_ = false;
  OtherGradients now_;
  std::unordered_map<std::int64_t, Tensor> by_;  // by id of the gradient
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
  const auto optimizers = step.optimizers();
  if (!optimizers) return Unexpected{optimizers.error()};
  if (optimizers->empty()) {
    return refuse_gradient_type("expected a node Optimizer.step#..., found none in the graph");
  }
  const auto gradients = GradientFinder(step, dtype).find(*optimizers);
  if (!gradients) return Unexpected{gradients.error()};
  if (gradients->empty()) return graph;
  return GradientWriter(step.graph(), dtype, *gradients, *optimizers).write();
}

}  // namespace perfmodel
