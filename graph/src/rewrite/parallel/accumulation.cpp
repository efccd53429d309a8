#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "builders/emit/memory.hpp"
#include "builders/emit/update.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "rewrite/change_tensors.hpp"
#include "rewrite/graph_copy.hpp"
#include "step/autograd_names.hpp"
#include "step/dialect.hpp"
#include "step/optimizer_reader.hpp"
#include "step/parameter_gradients.hpp"
#include "step/step_view.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kMostPasses = 1 << 16;

Unexpected refuse_accumulation(std::string message) {
  return fail(ErrorCode::kImpossible, "accumulate: " + std::move(message));
}

/// By AccumulateGrad node: the gradient that it keeps; into ExecutionGraph::tensors.
using KeptGradients = std::map<std::int32_t, std::uint32_t>;

Result<KeptGradients> kept_gradients(const StepView& step, const GraphIteration& range) {
  const ExecutionGraph& graph = step.graph();
  KeptGradients gradients;
  FactsOfValues<bool> is_kept(step.tensors());
  for (std::int32_t i = range.begin; i < range.end; ++i) {
    if (!step.parameter_gradients()[i]) continue;
    const auto kept = kept_gradient(graph, graph.node(i));
    if (!kept || is_undefined(graph.tensors[*kept])) continue;
    const Tensor& gradient = graph.tensors[*kept];
    if (gradient.storage_id == 0) {
      return refuse_accumulation(
          fmt::format("expected dense gradients, found a sparse one of [{}], which grows with "
                      "each backward pass",
                      fmt::join(graph.shape(gradient), ", ")));
    }
    if (is_kept[gradient]) {
      return refuse_accumulation(
          "expected one backward pass per step, found gradients that are accumulated already");
    }
    is_kept[gradient] = true;
    gradients.emplace(i, *kept);
  }
  return gradients;
}

/// The forward and the backward pass of one step.
struct TrainingPass {
  std::int32_t begin = 0, end = 0;  ///< nodes; threads and regions around them stay single
  KeptGradients kept;
  std::int32_t first_gradient = -1;  ///< the `ones_like` of the loss; -1: the loss is not known
  std::int32_t first_function = -1;  ///< first function of the backward pass
};

// The gradient of the loss is the first function's input.
std::int32_t gradient_of_loss(const StepView& step, std::int32_t function) {
  const ExecutionGraph& graph = step.graph();
  std::int32_t maker = -1;
  for_each_tensor(graph, graph.inputs(function), [&](const Tensor& tensor) {
    if (maker < 0) maker = step.tensors().maker(step.tensors().of(tensor));
  });
  if (maker < 0 || graph.name(maker) != "aten::ones_like") return -1;
  const auto loss = graph.inputs(maker);
  return !loss.empty() && loss[0].kind == Argument::Kind::kTensor ? maker : -1;
}

Result<TrainingPass> training_pass(const StepView& step, const GraphIteration& range,
                                   KeptGradients kept) {
  const ExecutionGraph& graph = step.graph();
  TrainingPass pass{.begin = range.begin, .end = range.begin, .kept = std::move(kept)};
  for (const BackwardFunction& function : step.backward().functions) {
    if (function.evaluate < range.begin || function.evaluate >= range.end) continue;
    if (pass.first_function < 0) {
      pass.first_function = function.evaluate;
      pass.first_gradient = gradient_of_loss(step, function.function);
    }
    pass.end = std::max(pass.end, last_below(graph, function.evaluate) + 1);
  }
  for (const std::int32_t label : optimizer_steps(graph)) {
    if (label < pass.begin || label >= pass.end) continue;
    return refuse_accumulation(
        fmt::format("expected the backward pass in front of the optimizer, found {} (node {}) "
                    "between its functions",
                    graph.name(label), graph.node(label).id));
  }
  return pass;
}

/// Steps without gradients are left out.
Result<std::vector<TrainingPass>> training_passes(const StepView& step) {
  std::vector<TrainingPass> passes;
  for (const GraphIteration& range : iterations(step.graph())) {
    PERFMODEL_TRY(kept, kept_gradients(step, range));
    if (kept->empty()) continue;
    PERFMODEL_TRY(pass, training_pass(step, range, std::move(*kept)));
    passes.push_back(std::move(*pass));
  }
  return passes;
}

class AccumulationWriter {
 public:
  AccumulationWriter(const StepView& step, std::int64_t passes)
      : source_(step.graph()),
        step_(step),
        passes_(passes),
        copy_(source_, dialect_of(source_)),
        builder_(copy_.builder()),
        // The builder gives away ids after the source's.
        id_stride_(last_tensor_id() + kIdsPerPass * passes + 1),
        // The division of the loss has the last number of each pass.
        sequence_stride_(step.backward().last_sequence + 2) {}

  ExecutionGraph write(const std::vector<TrainingPass>& passes_of_steps) {
    std::int32_t next = 0;
    for (const TrainingPass& pass : passes_of_steps) {
      for (; next < pass.begin; ++next) copy_.copy(next);
      for (repeat_ = 0; repeat_ < passes_; ++repeat_) write_pass(pass);
      next = pass.end;
    }
    for (; next < static_cast<std::int32_t>(source_.nodes.size()); ++next) copy_.copy(next);
    return copy_.finish();
  }

 private:
  static constexpr std::int64_t kIdsPerPass = 64;

  std::int64_t last_tensor_id() const {
    std::int64_t last = 0;
    for (const Tensor& tensor : source_.tensors) {
      last = std::max({last, tensor.id, tensor.storage_id});
    }
    return last;
  }

  bool is_skipped(const TrainingPass& pass, std::int32_t node) const {
    return source_.node(node).is_structural || last_below(source_, node) >= pass.end;
  }

  void write_pass(const TrainingPass& pass) {
    for (std::int32_t i = pass.begin; i < pass.end; ++i) {
      if (repeat_ > 0 && is_skipped(pass, i)) continue;
      if (repeat_ > 0 && source_.name(i).starts_with("Optimizer.zero_grad#")) {
        i = last_below(source_, i);
        continue;
      }
      if (i == pass.first_gradient) divide_loss(pass);
      if (i == pass.first_function && pass.first_gradient >= 0) divide_gradient(pass);
      copy(pass, i);
      const auto kept = pass.kept.find(i);
      if (repeat_ == 0 || kept == pass.kept.end() || adds_to_gradient(source_, source_.node(i))) {
        continue;
      }
      add_to_kept(pass, i, kept->second);
      i = last_below(source_, i);
    }
  }

  void copy(const TrainingPass& pass, std::int32_t i) {
    copy_.copy(i);
    ExecutionGraph& made = builder_.graph_being_made();
    Node& node = made.nodes.back();
    if (node.seq_id >= 0) node.seq_id += repeat_ * sequence_stride_;
    const bool reads_divided =
        pass.first_gradient >= 0 &&
        (source_.is_inside(i, pass.first_gradient) || source_.is_inside(i, pass.first_function));
    if (repeat_ == 0 && !reads_divided) return;
    own_arguments(builder_, node);  // all passes share the source's
    change_copied_tensors(source_, source_.node(i), made, node,
                          [&](const Tensor& source, Tensor& mention) {
                            mention = in_pass(pass, source);
                            if (reads_divided && step_.tensors().of(source) == undivided_) {
                              take_place(mention, divided_);
                            }
                          });
  }

  // A tensor as this pass knows it: each pass makes new ones.
  Tensor in_pass(const TrainingPass& pass, const Tensor& mention) const {
    const auto stride = [&](const Values& values) {
      const std::int32_t maker = values.maker(values.of(mention));
      return maker >= pass.begin && maker < pass.end ? repeat_ * id_stride_ : 0;
    };
    Tensor tensor = mention;
    if (is_undefined(mention)) return tensor;
    tensor.id += stride(step_.tensors());
    if (mention.storage_id != 0) tensor.storage_id += stride(step_.storages());
    return tensor;
  }

  // Inside the AccumulateGrad that was copied last.
  void add_to_kept(const TrainingPass& pass, std::int32_t accumulate, std::uint32_t kept) {
    for (const Argument& argument : source_.inputs(accumulate)) {
      if (argument.kind != Argument::Kind::kTensor) continue;
      const Tensor gradient = in_pass(pass, source_.tensors[argument.index]);
      return add_(builder_, builder_.tensor_of_source(kept), builder_.tensor_of_source(gradient));
    }
  }

  std::int64_t last_sequence_of_pass() const { return (repeat_ + 1) * sequence_stride_ - 1; }

  void divide(const TrainingPass& pass, const Argument& argument, std::int64_t sequence) {
    const Tensor& undivided = source_.tensors[argument.index];
    const TensorRef tensor = builder_.tensor_of_source(in_pass(pass, undivided));
    const TensorRef number = wrapped_number(builder_);
    divided_ = builder_.mention_of(div(builder_, tensor, number, sequence));
    undivided_ = step_.tensors().of(undivided);
  }

  // loss / K in front of the gradient of the loss.
  void divide_loss(const TrainingPass& pass) {
    copy_.close_beside(pass.first_gradient);
    divide(pass, source_.inputs(pass.first_gradient)[0], last_sequence_of_pass());
  }

  // Its function comes first.
  void divide_gradient(const TrainingPass& pass) {
    copy_.close_beside(pass.first_function);
    const Argument ones = source_.outputs(pass.first_gradient)[0];
    const TensorRef gradient =
        builder_.tensor_of_source(in_pass(pass, source_.tensors[ones.index]));
    builder_.begin_plain(fmt::format("{}DivBackward0", kEvaluate));
    builder_.begin_backward_function("DivBackward0", {gradient}, last_sequence_of_pass());
    divide(pass, ones, -1);
    builder_.end_op();
    builder_.end_op();
  }

  const ExecutionGraph& source_;
  const StepView& step_;
  const std::int64_t passes_;
  GraphCopy copy_;
  GraphBuilder& builder_;
  const std::int64_t id_stride_, sequence_stride_;
  std::int64_t repeat_ = 0;
  std::int32_t undivided_ = -1;  // the loss, then its gradient: functions read `divided_` instead
  Tensor divided_;
};

}  // namespace

Result<ExecutionGraph> rewrite_accumulation(const ExecutionGraph& source, std::int64_t passes) {
  if (passes < 1 || passes > kMostPasses) {
    return refuse_accumulation(
        fmt::format("expected 1 to {} backward passes, found {}", kMostPasses, passes));
  }
  const StepView step(source);
  if (auto good = step.check("accumulate", {.no_collectives = true, .eager = true}); !good) {
    return Unexpected{good.error()};
  }
  PERFMODEL_TRY(found, training_passes(step));
  if (found->empty()) {
    return refuse_accumulation("expected a backward pass with AccumulateGrad, found none");
  }
  if (passes == 1) return source;
  return AccumulationWriter(step, passes).write(*found);
}

Result<std::int64_t> samples_per_step(const ExecutionGraph& graph) {
  return batch_size(graph).map(
      [&](std::int64_t batch) { return batch * accumulated_passes(graph); });
}

}  // namespace perfmodel
