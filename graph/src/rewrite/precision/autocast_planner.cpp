#include <algorithm>
#include <map>

#include "autocast.hpp"
#include "autocast_ops.hpp"

namespace perfmodel {
namespace {

/// Plans the backward pass. Functions run in order of their numbers, highest first: every function
/// has a lower number than those that hand it gradients.
class AutocastBackward {
 public:
  AutocastBackward(const StepView& step, AutocastOps& ops, AutocastPlan& plan)
      : graph_(step.graph()),
        functions_(step.backward().functions),
        ops_(ops),
        plan_(plan),
        gradients_(functions_.size()) {
    for (const GradientEdge& edge : step.backward().edges) {
      gradients_[edge.from].leaving.push_back(edge);
      ++gradients_[edge.to].pending;
      gradients_[edge.to].is_fed = true;
    }
  }

  /// In the order of the source.
  void plan_function(std::int32_t f) {
    const BackwardFunction& function = functions_[f];
    if (function.accumulates() && gradients_[f].pending > 0) {
      waiting_.push_back(f);
    } else {
      if (!function.accumulates()) run_casts(f, number(function));
      run_function(f);
    }
    const std::int32_t next = f + 1;  // begins a pass if no function hands it a gradient
    const bool is_last = next == std::ssize(functions_) ||
                         (!functions_[next].accumulates() && !gradients_[next].is_fed);
    if (is_last) run_casts(f, -1);
  }

 private:
  /// Gradients of a function.
  struct FunctionGradients {
    std::vector<GradientEdge> leaving = {};
    std::vector<ReplacedTensor> arrived = {};  // as they are handed over
    int pending = 0;                           // still to come
    bool is_fed = false;                       // by another function
  };

  /// The gradient that comes back to a cast.
  struct CastGradient {
    GradientEdge edge = {};       // where it goes from the cast; its tensor may be a sum
    RetypedTensor gradient = {};  // as the cast is handed it
    int edges = 0;                // how many it is for
  };

  // The functions follow their forward ops.
  std::int64_t number(const BackwardFunction& function) const {
    const std::int64_t moved = function.forward < 0 ? -1 : plan_.ops[function.forward].sequence;
    return moved < 0 ? function.sequence : moved;
  }

  // Casts whose number is above `sequence`.
  void run_casts(std::int32_t next_to, std::int64_t sequence) {
    while (!ready_.empty() && ready_.rbegin()->first > sequence) {
      const std::int32_t cast = ready_.rbegin()->second;
      ready_.erase(std::prev(ready_.end()));
      run_cast(next_to, cast);
    }
  }

  void run_cast(std::int32_t next_to, std::int32_t cast) {
    const CastGradient& back = cast_gradients_.at(cast);
    const RetypedTensor gradient = ops_.add_cast({.tensor = &graph_.tensors[back.edge.tensor],
                                                  .from = back.gradient,
                                                  .dtype = plan_.casts[cast].from.dtype,
                                                  .by_options = true,
                                                  .sequence = plan_.casts[cast].sequence});
    plan_.steps.push_back({.kind = PlannedStep::Kind::kCastFunction,
                           .at = next_to,
                           .cast = gradient.cast,
                           .sum = back.edge.sum});
    arrive(back.edge, gradient);
    const std::int32_t to = back.edge.to;
    gradients_[to].pending -= back.edges;
    if (gradients_[to].pending <= 0 && std::erase(waiting_, to) > 0) run_function(to);
  }

  void run_function(std::int32_t f) {
    const BackwardFunction& function = functions_[f];
    const std::int32_t owner = ops_.owner_of(function);
    std::vector<ReplacedTensor> here = gradients_[f].arrived;
    if (owner >= 0) {  // the op kept its casts for this
      const auto& casts = plan_.ops[owner].casts;
      here.insert(here.begin(), casts.begin(), casts.end());
    }
    if (function.evaluate != function.function) {
      plan_.steps.push_back({.kind = PlannedStep::Kind::kNode, .at = function.evaluate});
    }
    plan_.steps.push_back({.at = function.function});
    plan_.ops[function.function].sequence = number(function);
    ops_.set_forward(function.forward);
    ops_.with(std::move(here), [&] {
      ops_.mention(graph_.inputs(function.function));
      for (const std::int32_t child : graph_.children(function.function)) ops_.plan_tree(child);
      if (function.evaluate != function.function) hand_over(f);
    });
  }

  // After a function come sums over broadcast axes, casts to the type that is expected and sums of
  // gradients.
  void hand_over(std::int32_t f) {
    const auto& edges = gradients_[f].leaving;
    for (const std::int32_t child : graph_.children(functions_[f].evaluate)) {
      const bool adds = std::ranges::find(edges, child, &GradientEdge::sum) != edges.end();
      if (child != functions_[f].function && !adds) run_tree(child);
    }
    for (const GradientEdge& edge : edges) {
      const std::int32_t cast = cast_of(edge);
      if (cast >= 0) {
        hand_to_cast(edge, cast);
      } else {
        hand_to_function(edge);
      }
    }
  }

  void run_tree(std::int32_t node) {
    ops_.plan_tree(node);
    plan_.steps.push_back({.at = node});
  }

  // The cast of the forward pass through which a gradient comes back; -1: none. Each parameter of
  // an op (both biases of an LSTM cell) has its own.
  std::int32_t cast_of(const GradientEdge& edge) const {
    const std::int32_t owner = ops_.owner_of(functions_[edge.from]);
    if (owner < 0) return -1;
    const auto& casts = plan_.ops[owner].casts;
    const auto at = std::ranges::find_if(casts, [&](const ReplacedTensor& one) {
      const auto back = cast_gradients_.find(one.by.cast);
      return plan_.casts[one.by.cast].is_recorded && one.producer == functions_[edge.to].sequence &&
             (back == cast_gradients_.end() || back->second.edge.to == edge.to) &&
             has_shape(*one.tensor, graph_.tensors[edge.tensor]);
    });
    return at == casts.end() ? -1 : at->by.cast;
  }

  // Gradients of a cast that was used twice are summed before it.
  void hand_to_cast(const GradientEdge& edge, std::int32_t cast) {
    CastGradient& back = cast_gradients_[cast];
    if (edge.sum >= 0 && back.edges > 0) {
      run_tree(edge.sum);
      back.edge.tensor = graph_.outputs(edge.sum)[0].index;
    } else {
      back.edge = edge;
      ready_[plan_.casts[cast].sequence] = cast;
    }
    back.gradient = ops_.retyped(graph_.tensors[back.edge.tensor]);
    ++back.edges;
  }

  void hand_to_function(const GradientEdge& edge) {
    const Tensor& tensor = graph_.tensors[edge.tensor];
    RetypedTensor gradient = ops_.retyped(tensor);
    const DType expected = expected_type(functions_[edge.to], tensor);
    const bool is_expected = gradient.dtype == expected || expected == DType::kUnknown;
    if (tensor.dtype == DType::kFloat32 && !is_expected) {
      gradient = ops_.add_cast({.tensor = &tensor, .from = gradient, .dtype = expected});
      plan_.steps.push_back({.kind = PlannedStep::Kind::kCast,
                             .at = functions_[edge.from].evaluate,
                             .cast = gradient.cast});
    }
    if (edge.sum >= 0) plan_.steps.push_back({.at = edge.sum});
    arrive(edge, gradient);
    --gradients_[edge.to].pending;
  }

  // A gradient has come to the function that takes it, or to the sum before that.
  void arrive(const GradientEdge& edge, const RetypedTensor& gradient) {
    auto& arrived = gradients_[edge.to].arrived;
    arrived.push_back({.tensor = &graph_.tensors[edge.tensor], .by = gradient});
    if (edge.sum < 0) return;
    const Tensor& sum = graph_.tensors[graph_.outputs(edge.sum)[0].index];
    ops_.with(arrived, [&] {
      ops_.plan_tree(edge.sum);
      arrived.push_back({.tensor = &sum, .by = ops_.retyped(sum)});
    });
  }

  // A gradient has the type of the result that it belongs to, which has its shape if there are
  // several.
  DType expected_type(const BackwardFunction& function, const Tensor& gradient) const {
    if (function.accumulates()) return DType::kFloat32;
    if (function.forward < 0) return DType::kUnknown;
    const auto results = tensors_of(graph_, graph_.outputs(function.forward));
    if (results.empty()) return DType::kUnknown;
    const auto same = std::ranges::find_if(
        results, [&](const Tensor* result) { return has_shape(*result, gradient); });
    const Tensor& result = same == results.end() ? *results.front() : **same;
    return plan_.mentions[mention_index(graph_, result)].dtype;
  }

  bool has_shape(const Tensor& tensor, const Tensor& other) const {
    return std::ranges::equal(graph_.shape(tensor), graph_.shape(other));
  }

  const ExecutionGraph& graph_;
  const std::vector<BackwardFunction>& functions_;
  AutocastOps& ops_;
  AutocastPlan& plan_;
  std::vector<FunctionGradients> gradients_;    // by function
  std::vector<std::int32_t> waiting_;           // functions that accumulate
  std::map<std::int64_t, std::int32_t> ready_;  // casts by their number
  std::map<std::int32_t, CastGradient> cast_gradients_;
};

}  // namespace

AutocastPlan plan_autocast(const StepView& step, const std::vector<bool>& region,
                           const AutocastOptions& options) {
  const ExecutionGraph& graph = step.graph();
  const auto& functions = step.backward().functions;
  AutocastPlan plan(graph);
  AutocastOps ops(step, region, options, plan);
  AutocastBackward backward(step, ops, plan);
  const auto iterations = perfmodel::iterations(graph);
  // A recording may give the node around a backward function the scope of a label.
  const auto is_op = [&](std::int32_t i) {
    return !graph.node(i).is_label || step.backward().in_backward[i];
  };
  std::int32_t f = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    if (std::ranges::find(iterations, i, &GraphIteration::begin) != iterations.end()) {
      ops.forget_parameters();
    }
    if (graph.find_around(graph.node(i).parent, is_op) >= 0) continue;  // with the op around it
    while (f < std::ssize(functions) && functions[f].evaluate < i) ++f;
    if (f < std::ssize(functions) && functions[f].evaluate == i) {
      backward.plan_function(f);
    } else if (is_op(i)) {
      ops.plan_tree(i);
      plan.steps.push_back({.at = i});
    } else {
      plan.steps.push_back({.kind = PlannedStep::Kind::kNode, .at = i});
    }
  }
  return plan;
}

}  // namespace perfmodel
