#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "builders/emit/memory.hpp"
#include "builders/emit/update.hpp"
#include "core/parameter_gradients.hpp"
#include "ops/catalogue.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "rewrite/change_tensors.hpp"
#include "rewrite/graph_copy.hpp"
#include "rewrite/tensor_substitution.hpp"
#include "step/autograd_names.hpp"
#include "step/dialect.hpp"
#include "step/optimizer_reader.hpp"
#include "step/step_view.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;

constexpr std::int64_t kMostPasses = 1 << 16;

Unexpected refuse_accumulation(std::string message) {
  return fail(ErrorCode::kImpossible, "accumulate: " + std::move(message));
}

/// The forward and the backward pass of one step.
struct TrainingPass {
  std::int32_t begin = 0, end = 0;  ///< nodes; threads and regions around them stay single
  /// By AccumulateGrad node: tensor that it keeps; into ExecutionGraph::tensors.
  std::unordered_map<std::int32_t, std::int64_t> kept;
  std::int32_t first_gradient = -1;  ///< the `ones_like` of the loss; -1: the loss is not known
  std::int32_t first_function = -1;  ///< of the backward pass
  /// Made in the pass: another time they are others.
  std::unordered_set<std::int64_t> tensors, storages;
};

class TrainingPassFinder {
 public:
  TrainingPassFinder(const StepView& step, const GraphIteration& range)
      : graph_(step.graph()), step_(step), range_(range) {}

  /// Without gradients: nothing is kept.
  Result<TrainingPass> find() {
    pass_.begin = range_.begin;
    if (auto good = find_gradients(); !good) return Unexpected{good.error()};
    if (pass_.kept.empty()) return std::move(pass_);
    if (auto good = check_optimizers(); !good) return Unexpected{good.error()};
    find_loss();
    find_made();
    return std::move(pass_);
  }

 private:
  Result<void> find_gradients() {
    std::unordered_set<std::int64_t> ids;
    for (std::int32_t i = range_.begin; i < range_.end; ++i) {
      if (is_evaluate(graph_.node(i))) {
        if (pass_.first_function < 0) pass_.first_function = i;
        pass_.end = std::max(pass_.end, last_below(graph_, i) + 1);
      }
      if (!step_.parameter_gradients()[i]) continue;
      const auto kept = kept_gradient(graph_, graph_.node(i));
      if (!kept) continue;
      const Tensor& tensor = graph_.tensors[*kept];
      if (tensor.dtype == DType::kUnknown) continue;  // undefined
      if (tensor.storage_id == 0) {
        return refuse_accumulation(
            fmt::format("expected dense gradients, found a sparse one of [{}], which grows with "
                        "each backward pass",
                        fmt::join(graph_.shape(tensor), ", ")));
      }
      if (!ids.insert(tensor.id).second) {
        return refuse_accumulation(
            "expected one backward pass per step, found gradients that are accumulated already");
      }
      pass_.kept.emplace(i, *kept);
    }
    return {};
  }

  bool is_evaluate(const Node& at) const {
    return at.scope == Scope::kBackward || is_evaluate_function(graph_, at);
  }

  Result<void> check_optimizers() const {
    for (const std::int32_t label : optimizer_steps(graph_)) {
      if (label < range_.begin || label >= pass_.end) continue;
      return refuse_accumulation(
          fmt::format("expected the backward pass in front of the optimizer, found {} (node {}) "
                      "between its functions",
                      graph_.name(label), graph_.node(label).id));
    }
    return {};
  }

  // The gradient of the loss is the first function's input.
  void find_loss() {
    if (pass_.first_function < 0) return;
    std::int64_t gradient = 0;
    walk_tree(
        graph_, pass_.first_function,
        [&](std::int32_t at) {
          if (graph_.node(at).scope != Scope::kBackward || gradient != 0) return gradient == 0;
          for_each_tensor(graph_, graph_.inputs(at), [&](const Tensor& tensor) {
            if (gradient == 0) gradient = tensor.id;
          });
          return false;
        },
        [] {});
    for (std::int32_t i = pass_.first_function; gradient != 0 && i-- > range_.begin;) {
      if (graph_.name(i) != "aten::ones_like") continue;
      const auto loss = graph_.inputs(i), made = graph_.outputs(i);
      const bool of_tensor = !loss.empty() && loss[0].kind == Kind::kTensor && !made.empty() &&
                             made[0].kind == Kind::kTensor;
      if (of_tensor && graph_.tensors[made[0].index].id == gradient) pass_.first_gradient = i;
      return;
    }
  }

  void find_made() {
    const auto is_made = [&](const Values& values, const Tensor& tensor) {
      const std::int32_t maker = values.maker(values.of(tensor));
      return maker >= pass_.begin && maker < pass_.end;
    };
    for (const Tensor& tensor : graph_.tensors) {
      if (tensor.dtype == DType::kUnknown) continue;
      if (is_made(step_.tensors(), tensor)) pass_.tensors.insert(tensor.id);
      if (tensor.storage_id == 0 || !is_made(step_.storages(), tensor)) continue;
      pass_.storages.insert(tensor.storage_id);
    }
  }

  const ExecutionGraph& graph_;
  const StepView& step_;
  const GraphIteration& range_;
  TrainingPass pass_;
};

std::int64_t last_tensor_id(const ExecutionGraph& graph) {
  std::int64_t last = 0;
  for (const Tensor& tensor : graph.tensors) {
    last = std::max({last, tensor.id, tensor.storage_id});
  }
  return last;
}

std::int64_t last_sequence(const ExecutionGraph& graph) {
  std::int64_t last = -1;
  for (const Node& node : graph.nodes) last = std::max(last, node.seq_id);
  return last;
}

class AccumulationWriter {
 public:
  AccumulationWriter(const ExecutionGraph& graph, std::int64_t passes,
                     const std::vector<TrainingPass>& steps)
      : source_(graph),
        passes_(passes),
        steps_(steps),
        copy_(graph, dialect_of(graph)),
        graph_(copy_.builder()),
        // Behind the ids of the source come those that the builder gives away.
        id_stride_(last_tensor_id(graph) + kIdsPerPass * passes + 1),
        // The division of the loss has the last number of each pass.
        sequence_stride_(last_sequence(graph) + 2) {}

  ExecutionGraph write() {
    std::int32_t next = 0;
    for (const TrainingPass& step : steps_) {
      for (; next < step.begin; ++next) copy_.copy(next);
      for (pass_ = 0; pass_ < passes_; ++pass_) write_pass(step);
      pass_ = 0;
      next = step.end;
    }
    for (; next < static_cast<std::int32_t>(source_.nodes.size()); ++next) copy_.copy(next);
    ExecutionGraph made = copy_.finish();
    for (const auto& [position, forward] : forward_parents_) {
      made.node(position).fw_parent = forward;
    }
    return made;
  }

 private:
  static constexpr std::int64_t kIdsPerPass = 64;

  void write_pass(const TrainingPass& step) {
    others_.clear();
    std::int32_t skip_until = step.begin;
    for (std::int32_t i = step.begin; i < step.end; ++i) {
      if (i < skip_until) continue;
      const bool around = source_.node(i).is_structural || last_below(source_, i) >= step.end;
      if (pass_ > 0 && around) continue;
      if (pass_ > 0 && source_.name(i).starts_with("Optimizer.zero_grad#")) {
        skip_until = last_below(source_, i) + 1;
        continue;
      }
      if (i == step.first_gradient) divide_loss(i);
      if (i == step.first_function && step.first_gradient >= 0) divide_gradient(step);
      copy(step, i);
      const auto kept = step.kept.find(i);
      if (pass_ == 0 || kept == step.kept.end() || adds_already(i)) continue;
      add_to_kept(kept->second);
      skip_until = last_below(source_, i) + 1;
    }
  }

  void copy(const TrainingPass& step, std::int32_t i) {
    copy_.copy(i);
    ExecutionGraph& made = graph_.graph_being_made();
    const auto position = static_cast<std::size_t>(copy_.copied(i));
    // All passes share the arguments of the source; a node that changes them needs its own copy.
    if (pass_ > 0 || reads_loss(step, i)) own_arguments(graph_, made.nodes[position]);
    if (pass_ > 0) rename(step, made.nodes[position]);
    if (made.nodes[position].seq_id >= 0) made.nodes[position].seq_id += pass_ * sequence_stride_;
    if (reads_loss(step, i)) others_.apply(made, made.nodes[position]);
    note_forward_parent(i, position);
  }

  // The gradient of the loss, and the function that takes it.
  bool reads_loss(const TrainingPass& step, std::int32_t i) const {
    const auto inside = [&](std::int32_t tree) {
      return tree >= 0 && i >= tree && i <= last_below(source_, tree);
    };
    return step.first_gradient >= 0 && (inside(step.first_gradient) || inside(step.first_function));
  }

  void rename(const TrainingPass& step, const Node& made) {
    change_tensors(graph_.graph_being_made(), made, [&](Tensor& tensor) {
      if (step.tensors.contains(tensor.id)) tensor.id += pass_ * id_stride_;
      if (step.storages.contains(tensor.storage_id)) tensor.storage_id += pass_ * id_stride_;
    });
  }

  // GraphCopy::finish() knows the last copy of each node alone.
  void note_forward_parent(std::int32_t i, std::size_t position) {
    const std::int64_t forward = source_.node(i).fw_parent;
    if (forward == 0) return;
    if (positions_.empty()) {
      for (std::size_t k = 0; k < source_.nodes.size(); ++k) {
        positions_[source_.nodes[k].id] = static_cast<std::int32_t>(k);
      }
    }
    const auto at = positions_.find(forward);
    const std::int32_t to = at == positions_.end() ? -1 : copy_.copied(at->second);
    const auto& nodes = graph_.graph_being_made().nodes;
    forward_parents_.emplace_back(position, to < 0 ? 0 : nodes[to].id);
  }

  bool adds_already(std::int32_t accumulate) const {
    return std::ranges::any_of(source_.children(accumulate),
                               [&](std::int32_t child) { return is_sum(source_.name(child)); });
  }

  // Inside the AccumulateGrad that was copied last.
  void add_to_kept(std::int64_t kept) {
    const ExecutionGraph& made = graph_.graph_being_made();
    for (const Argument& argument : made.inputs(made.nodes[graph_.innermost()])) {
      if (argument.kind != Kind::kTensor) continue;
      const TensorRef gradient = graph_.tensor_of_source(argument.index);
      add_(graph_, graph_.tensor_of_source(static_cast<std::uint32_t>(kept)), gradient);
      return;
    }
  }

  // loss / K in front of the gradient of the loss.
  void divide_loss(std::int32_t ones) {
    copy_.close_beside(ones);
    const ExecutionGraph& made = graph_.graph_being_made();
    const std::uint32_t loss = source_.inputs(ones)[0].index;
    const Argument again = argument_of_pass(loss);
    const TensorRef number = wrapped_number(graph_);
    const TensorRef divided = div(graph_, graph_.tensor_of_source(again.index), number,
                                  (pass_ + 1) * sequence_stride_ - 1);
    const Argument argument = graph_.tensor_argument(divided);
    others_.replace(made.tensors[again.index].id, made.tensors[argument.index]);
  }

  // Its function comes first.
  void divide_gradient(const TrainingPass& step) {
    copy_.close_beside(step.first_function);
    const ExecutionGraph& made = graph_.graph_being_made();
    const std::uint32_t ones = source_.outputs(step.first_gradient)[0].index;
    const Argument again = argument_of_pass(ones);
    const TensorRef gradient = graph_.tensor_of_source(again.index);
    graph_.begin_plain(std::string(kEvaluate) + "DivBackward0");
    graph_.begin_backward_function("DivBackward0", {gradient}, (pass_ + 1) * sequence_stride_ - 1);
    const TensorRef divided = div(graph_, gradient, wrapped_number(graph_));
    graph_.end_op();
    graph_.end_op();
    others_.clear();
    const Argument argument = graph_.tensor_argument(divided);
    others_.replace(made.tensors[again.index].id, made.tensors[argument.index]);
  }

  // A tensor of the loss as this pass knows it.
  Argument argument_of_pass(std::uint32_t tensor) {
    const Argument again = graph_.tensor_argument(graph_.tensor_of_source(tensor));
    Tensor& made = graph_.graph_being_made().tensors[again.index];
    made.id += pass_ * id_stride_;
    if (made.storage_id != 0) made.storage_id += pass_ * id_stride_;
    return again;
  }

  const ExecutionGraph& source_;
  const std::int64_t passes_;
  const std::vector<TrainingPass>& steps_;
  GraphCopy copy_;
  GraphBuilder& graph_;
  const std::int64_t id_stride_, sequence_stride_;
  std::int64_t pass_ = 0;
  TensorSubstitution others_;
  std::unordered_map<std::int64_t, std::int32_t> positions_;  // by id, of the source
  std::vector<std::pair<std::size_t, std::int64_t>> forward_parents_;
};

}  // namespace

Result<ExecutionGraph> rewrite_accumulation(const ExecutionGraph& source, std::int64_t passes) {
  if (passes < 1 || passes > kMostPasses) {
    return refuse_accumulation(
        fmt::format("expected 1 to {} backward passes, found {}", kMostPasses, passes));
  }
  const StepView step(source);
  if (auto good = step.check("accumulate", {.no_collectives = true}); !good) {
    return Unexpected{good.error()};
  }
  const ExecutionGraph& graph = step.graph();
  std::vector<TrainingPass> steps;
  for (const GraphIteration& iteration : iterations(graph)) {
    auto pass = TrainingPassFinder(step, iteration).find();
    if (!pass) return Unexpected{pass.error()};
    if (!pass->kept.empty()) steps.push_back(std::move(*pass));
  }
  if (steps.empty()) {
    return refuse_accumulation("expected a backward pass with AccumulateGrad, found none");
  }
  if (passes == 1) return source;
  return AccumulationWriter(graph, passes, steps).write();
}

Result<std::int64_t> samples_per_step(const ExecutionGraph& graph) {
  return batch_size(graph).map(
      [&](std::int64_t batch) { return batch * accumulated_passes(graph); });
}

}  // namespace perfmodel
