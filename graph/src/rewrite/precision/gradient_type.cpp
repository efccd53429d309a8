#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "builders/emit/foreach.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/update.hpp"
#include "core/parameter_gradients.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite/dialect.hpp"
#include "rewrite/graph_copy.hpp"
#include "rewrite/one_pass.hpp"
#include "rewrite/optimizer/optimizer_writer.hpp"
#include "rewrite/optimizer_reader.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;

Unexpected refuse_gradient_type(std::string message) {
  return fail(ErrorCode::kImpossible, "grad-dtype: " + std::move(message));
}

// They reduce what is kept, so they stand behind.
Result<void> check_without_collectives(const ExecutionGraph& graph) {
  for (const Node& node : graph.nodes) {
    if (node.comm < 0) continue;
    const std::string& kind = graph.comm_records[node.comm].collective;
    if (kind == "init" || kind == "end") continue;
    return refuse_gradient_type(
        fmt::format("expected a graph without collectives, found {} (node {}): data-parallel and "
                    "tensor-parallel come behind this",
                    kind, node.id));
  }
  return {};
}

/// A gradient that is to be kept in another type.
struct RetypedGradient {
  std::int64_t read = -1;      // as the optimizer takes it; into ExecutionGraph::tensors
  std::int64_t parameter = 0;  // id of the model's weight
};

/// What a graph's steps do with the gradients that change their type.
struct RetypedSteps {
  std::map<std::int32_t, ReadStep> steps;                         // by label
  std::unordered_map<std::int32_t, RetypedGradient> accumulated;  // by AccumulateGrad node
};

class GradientFinder {
 public:
  GradientFinder(const ExecutionGraph& graph, DType dtype)
      : graph_(graph), dtype_(dtype), of_parameter_(parameter_gradients(graph)) {}

  Result<RetypedSteps> find() {
    const std::vector<std::int32_t> labels = optimizer_steps(graph_);
    if (labels.empty()) {
      return refuse_gradient_type("expected a node Optimizer.step#..., found none in the graph");
    }
    std::int32_t begin = 0;
    for (const std::int32_t label : labels) {
      auto step = read_optimizer_step(graph_, label);
      if (!step) return Unexpected{step.error()};
      for (; begin < label; ++begin) note_kept(begin);
      for (const ReadGroup& group : step->groups) {
        for (const ReadUpdate& update : group.updates) {
          if (auto good = take(update); !good) return Unexpected{good.error()};
        }
      }
      found_.steps.emplace(label, std::move(*step));
    }
    return std::move(found_);
  }

 private:
  void note_kept(std::int32_t node) {
    if (!of_parameter_[node]) return;
    const auto kept = kept_gradient(graph_, graph_.node(node));
    if (kept) keeper_[graph_.tensors[*kept].id] = node;
  }

  Result<void> take(const ReadUpdate& update) {
    const Tensor& gradient = graph_.tensors[update.gradient];
    if (update.sparse) {
      return refuse_gradient_type("expected dense gradients, found a sparse one");
    }
    if (!gradient.on_gpu()) {
      return refuse_gradient_type("expected gradients on a GPU, found one on a CPU");
    }
    if (gradient.dtype == dtype_) return {};
    const auto keeper = keeper_.find(gradient.id);
    if (keeper == keeper_.end()) {
      return refuse_gradient_type(fmt::format(
          "expected gradients as AccumulateGrad keeps them, found one of [{}] that something else "
          "makes",
          fmt::join(graph_.shape(gradient), ", ")));
    }
    const std::int64_t weight = update.weight >= 0 ? update.weight : update.parameter;
    found_.accumulated[keeper->second] = {.read = update.gradient,
                                          .parameter = graph_.tensors[weight].id};
    return {};
  }

  const ExecutionGraph& graph_;
  const DType dtype_;
  const std::vector<bool> of_parameter_;
  std::unordered_map<std::int64_t, std::int32_t> keeper_;  // id of a gradient -> AccumulateGrad
  RetypedSteps found_;
};

class GradientWriter {
 public:
  GradientWriter(const ExecutionGraph& graph, DType dtype, const RetypedSteps& plan)
      : graph_(graph),
        dtype_(dtype),
        plan_(plan),
        copy_(graph, dialect_of(graph)),
        builder_(copy_.builder()) {}

  Result<ExecutionGraph> run() {
    std::vector<bool> done(graph_.nodes.size());  // with all that stands below
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      const Node& node = graph_.node(i);
      done[i] = node.parent >= 0 && done[node.parent];
      if (!done[i]) done[i] = write_whole(i);
      if (done[i]) continue;
      copy_.copy(i);
      read_now(builder_.graph_being_made().nodes.back());
    }
    if (!buffers_.empty() && !zeroed_) {
      return refuse_gradient_type(
          "expected Optimizer.zero_grad#..., where buffers in a wider type are emptied, found "
          "none");
    }
    return copy_.finish();
  }

 private:
  // Trees that change; whether this is one.
  bool write_whole(std::int32_t index) {
    const Node& node = graph_.node(index);
    if (graph_.name(node).starts_with("Optimizer.zero_grad#")) {
      copy_.copy_tree(index);
      zero_buffers(index);
      return true;
    }
    if (const auto step = plan_.steps.find(index); step != plan_.steps.end()) {
      copy_.copy(index);
      write_optimizer_step(copy_, step->second, {}, now_);
      return true;
    }
    const auto gradient = plan_.accumulated.find(index);
    if (gradient == plan_.accumulated.end()) return false;
    copy_.copy_tree(index);
    keep(index, gradient->second);
    return true;
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
    std::vector<std::pair<std::int32_t, const RetypedGradient*>> wider;
    for (const auto& [node, gradient] : plan_.accumulated) {
      if (is_wider(gradient)) wider.emplace_back(node, &gradient);
    }
    std::ranges::sort(wider);
    std::vector<TensorRef> buffers;
    std::map<std::int64_t, bool> seen;
    for (const auto& [node, gradient] : wider) {
      if (seen.emplace(gradient->parameter, true).second) buffers.push_back(buffer_of(*gradient));
    }
    if (buffers.empty()) return;
    copy_.close_to(label);
    foreach_zero_(builder_, buffers, -1);
    zeroed_ = true;
  }

  void keep(std::int32_t accumulate, const RetypedGradient& gradient) {
    copy_.close_to(accumulate);
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
    if (by_.empty()) return;
    read_now(copy.inputs_begin, copy.inputs_count);
    read_now(copy.outputs_begin, copy.outputs_count);
  }
  void read_now(std::uint32_t begin, std::uint32_t count) {
    ExecutionGraph& made = builder_.graph_being_made();
    for (std::uint32_t i = begin; i < begin + count; ++i) {
      const Argument& argument = made.arguments[i];
      if (argument.kind == Kind::kList) read_now(argument.index, argument.count);
      if (argument.kind != Kind::kTensor) continue;
      Tensor& tensor = made.tensors[argument.index];
      const auto by = by_.find(tensor.id);
      if (by == by_.end()) continue;
      tensor.id = by->second.id;
      tensor.storage_id = by->second.storage_id;
      tensor.offset = by->second.offset;
      tensor.dtype = by->second.dtype;
      tensor.item_size = by->second.item_size;
    }
  }

  const ExecutionGraph& graph_;
  const DType dtype_;
  const RetypedSteps& plan_;
  GraphCopy copy_;
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
  if (auto good = check_without_collectives(graph); !good) return Unexpected{good.error()};
  if (auto good = check_one_pass(graph, "grad-dtype"); !good) return Unexpected{good.error()};
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  const auto plan = GradientFinder(graph, dtype).find();
  if (!plan) return Unexpected{plan.error()};
  if (plan->accumulated.empty()) return graph;
  return GradientWriter(graph, dtype, *plan).run();
}

}  // namespace perfmodel
