#include <algorithm>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "attention_plan.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/pointwise.hpp"
#include "builders/emit/views.hpp"
#include "relaid_views.hpp"
#include "step/unread_ops.hpp"
#include "step/view_strides.hpp"

namespace perfmodel {
namespace {

constexpr double kHiddenScore = -std::numeric_limits<double>::infinity();

// Lists the tensors that an attention reads: q, k, v and the mask, if the kernel takes one.
std::vector<const Version*> attention_leaves(const AttentionPlan& plan) {
  std::vector<const Version*> leaves = {plan.site.q, plan.site.k, plan.site.v};
  if (plan.mask) leaves.push_back(plan.mask->tensor);
  return leaves;
}

class AttentionWriter {
 public:
  AttentionWriter(const StepView& step, std::vector<AttentionPlan> plans)
      : step_(step),
        graph_(step.graph()),
        edit_(graph_, step.dialect()),
        builder_(edit_.builder()),
        strides_(strides_in_memory(step)),
        views_(
            step, edit_, places_, [this](std::int64_t sequence) { return moved(sequence); },
            [this](std::int64_t sequence) { close(sequence); }) {
    std::vector<bool> gone(graph_.nodes.size());
    std::vector<std::int32_t> read;
    for (AttentionPlan& one : plans) {
      for (const Version* leaf : attention_leaves(one)) read.push_back(leaf->op);
      plan(std::move(one), gone);
    }
    for (const std::int32_t op : ops_left_unread(step, std::move(gone), read)) edit_.replace(op);
    std::ranges::sort(closed_);
  }

  ExecutionGraph write() {
    edit_.on_each_copy([this](std::int32_t, Node& made) {
      made.seq_id = moved(made.seq_id);
      own_arguments(builder_, made);
      places_.apply(edit_.made(), made);
    });
    return edit_.write();
  }

 private:
  struct State {
    AttentionPlan plan;
    std::int64_t sequence = -1;  // the last number that is gone
    std::unique_ptr<AutogradTape> tape = {};
    std::vector<TensorRef> leaves = {};  // q, k, v, mask
    TensorRef out = {};
  };

  // Autograd's numbers close up around those that are gone, and make room for new ones.
  std::int64_t moved(std::int64_t sequence) const {
    if (sequence < 0) return sequence;
    const auto gone = std::ranges::lower_bound(closed_, sequence) - closed_.begin();
    std::int64_t added = 0;
    for (const auto& [after, count] : added_) added += after < sequence ? count : 0;
    return sequence - gone + added;
  }
  void close(std::int64_t sequence) {
    closed_.insert(std::ranges::lower_bound(closed_, sequence), sequence);
  }

  void plan(AttentionPlan plan, std::vector<bool>& gone) {
    State& state = states_.emplace_back(State{.plan = std::move(plan)});
    const AttentionSite& site = state.plan.site;
    const auto& functions = step_.backward().functions;
    const auto leave_out = [&](std::int32_t node) {
      edit_.replace(node);
      mark_tree(graph_, node, gone);
    };
    for (const std::int32_t op : site.ops) leave_out(op);
    edit_.replace(site.out->op, [this, &state] { forward(state); });
    views_.plan(tensor(site.out));
    const BackwardGroup& backward = state.plan.backward;
    for (const std::int32_t one : backward.functions) {
      leave_out(functions[one].evaluate);
      closed_.push_back(functions[one].sequence);
      state.sequence = std::max(state.sequence, functions[one].sequence);
    }
    for (const GradientEdge& edge : backward.outgoing) {
      if (edge.sum < 0) views_.plan(graph_.tensors[edge.tensor]);
    }
    if (backward.functions.empty()) return;
    edit_.replace(functions[backward.functions.front()].evaluate,
                  [this, &state] { this->backward(state); });
  }

  const Tensor& tensor(const Version* version) const { return graph_.tensors[version->tensor]; }

  TensorRef given(std::uint32_t mention) {
    const Tensor& tensor = graph_.tensors[mention];
    const Shape& strides = std::as_const(strides_)[tensor];
    return builder_.tensor_of_source(places_.current(tensor), strides.empty() ? nullptr : &strides);
  }

  // [N, S, D] -> [B, H, S, D]
  TensorRef with_heads(AutogradTape& tape, const AttentionSite& site, TensorRef x) {
    const Shape shape = builder_.shape(x);
    if (shape.size() == 4) return x;
    if (site.batch * site.heads != shape[0]) return unsqueeze(tape, x, 0);
    return view(tape, x, {site.batch, site.heads, shape[1], shape[2]});
  }

  // Returns the tensor that the kernel adds to the scores.
  TensorRef mask(State& state, TensorRef q) {
    if (!state.plan.mask) return {};
    AutogradTape& tape = *state.tape;
    const DType type = state.plan.options.autocast.value_or(builder_.dtype(q));
    TensorRef mask = given(state.plan.mask->tensor->tensor);
    if (state.plan.mask_has_gradient) {
      state.leaves.push_back(mask);
      tape.add_parameter(mask);
    }
    using Form = AttentionMask::Form;
    if (state.plan.mask->form != Form::kAdds) {
      if (state.plan.mask->form == Form::kKeeps) {
        mask = unary(builder_, "aten::logical_not", mask, tape.sequence());
      }
      const TensorRef none = zeros(builder_, type, builder_.shape(mask));
      mask =
          emit(builder_, "aten::masked_fill.Scalar", {none, mask, kHiddenScore}, tape.sequence());
    }
    mask = cast(tape, mask, type);
    const Shape &queries = builder_.shape(q), shape = builder_.shape(mask);
    if (shape.empty()) throw Contradiction("a mask of attention has no dimension");
    Shape whole = {queries[0], 1, queries[2], shape.back()};
    if (state.plan.mask_has_gradient) whole[1] = queries[1];
    const bool is_whole = shape == whole || (shape.size() == 4 && shape[2] == queries[2] &&
                                             !state.plan.mask_has_gradient);
    return is_whole ? mask : expand(tape, mask, whole);
  }

  void forward(State& state) {
    const AttentionSite& site = state.plan.site;
    edit_.copy().close_beside(site.out->op);
    const bool recorded = !state.plan.backward.functions.empty();
    state.tape = std::make_unique<AutogradTape>(
        builder_, moved(recorded ? state.sequence : graph_.node(site.out->op).seq_id));
    AutogradTape& tape = *state.tape;
    for (const Version* version : {site.q, site.k, site.v}) {
      state.leaves.push_back(given(version->tensor));
      if (recorded) tape.add_parameter(state.leaves.back());
    }
    const std::int64_t first = tape.sequence();
    const TensorRef q = with_heads(tape, site, state.leaves[0]);
    TensorRef k = with_heads(tape, site, state.leaves[1]);
    if (site.k_is_turned) k = transpose(tape, k, -1, -2);
    const TensorRef v = with_heads(tape, site, state.leaves[2]);
    FusedAttention options = state.plan.options;
    options.mask = mask(state, q);
    state.out = fused_attention(tape, q, k, v, options);
    const auto shape = graph_.shape(tensor(site.out));
    if (shape.size() == 3) {
      const bool one = builder_.shape(state.out)[0] == 1;
      state.out = one ? squeeze(tape, state.out, 0)
                      : reshape(tape, state.out, Shape(shape.begin(), shape.end()));
    }
    if (recorded) added_.emplace_back(state.sequence, tape.sequence() - first);
    views_.replace(tensor(site.out), state.out);
  }

  void backward(State& state) {
    if (!state.tape) throw Contradiction("a gradient of attention comes before its forward pass");
    const BackwardGroup& group = state.plan.backward;
    const auto& functions = step_.backward().functions;
    edit_.copy().close_beside(functions[group.functions.front()].evaluate);
    const std::size_t position = edit_.made().nodes.size();
    const std::vector<TensorRef> gradients = state.tape->run_back(
        state.out, given(taken_gradient(graph_, group.incoming.back())), state.leaves);
    for (const GradientEdge& edge : group.outgoing) {
      const TensorRef made = gradients[role(state.plan, edge)];
      if (edge.sum >= 0) {
        add_to_sum(edge, made, position);
      } else {
        views_.replace(graph_.tensors[edge.tensor], made);
      }
    }
  }

  // Finds which of q, k, v and the mask a gradient is for: by the input of its function's op, by
  // its place among several results, or by its reader.
  std::size_t role(const AttentionPlan& plan, const GradientEdge& edge) const {
    const auto& functions = step_.backward().functions;
    const std::vector<const Version*> leaves = attention_leaves(plan);
    std::vector<std::size_t> read;
    for (std::size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      bool reads = false;
      for_each_tensor(graph_, graph_.inputs(functions[edge.from].forward),
                      [&](const Tensor& one) { reads |= one.id == tensor(leaves[leaf]).id; });
      if (reads) read.push_back(leaf);
    }
    if (read.size() == 1) return read.front();
    for (const std::int32_t op : graph_.children(functions[edge.from].function)) {
      const auto made = graph_.outputs(op);
      for (std::size_t at = 0; at < std::min(made.size(), leaves.size()); ++at) {
        const bool is_it = made[at].kind == Argument::Kind::kTensor &&
                           graph_.tensors[made[at].index].id == graph_.tensors[edge.tensor].id;
        if (is_it && made.size() >= 3) return at;
      }
    }
    const std::int32_t taker = step_.forward().op_around(functions[edge.to].forward);
    for (const std::size_t leaf : read) {
      if (leaves[leaf]->op == taker && taker >= 0) return leaf;
    }
    return read.empty() ? 0 : read.front();
  }

  // The gradient is added to gradients from elsewhere, inside of the function.
  void add_to_sum(const GradientEdge& edge, TensorRef made, std::size_t position) {
    builder_.close_to(graph_.node(edge.sum).thread, position);
    std::vector<Value> addends;
    for_each_tensor(graph_, graph_.inputs(edge.sum), [&](const Tensor& one) {
      const bool ours = one.id == graph_.tensors[edge.tensor].id;
      addends.emplace_back(ours ? made
                                : given(static_cast<std::uint32_t>(&one - graph_.tensors.data())));
    });
    addends.emplace_back(1);
    builder_.leaf_op(std::string(graph_.name(edge.sum)) + ".Tensor", std::move(addends),
                     {given(taken_gradient(graph_, edge))});
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  GraphEdit edit_;
  GraphBuilder& builder_;
  TensorPlaces places_;
  FactsOfValues<Shape> strides_;
  std::deque<State> states_;
  std::vector<std::int64_t> closed_;                          // sorted
  std::vector<std::pair<std::int64_t, std::int64_t>> added_;  // how many after which number
  RelaidViews views_;
};

}  // namespace

Result<ExecutionGraph> rewrite_attention(const ExecutionGraph& source, AttentionBackend kernel) {
  const StepView step(source);
  if (auto good = step.check("attention", {.no_checkpoints = true, .eager = true}); !good) {
    return Unexpected{good.error()};
  }
  PERFMODEL_TRY(plans, plan_attention(step, kernel));
  if (plans->plans.empty()) return source;
  ExecutionGraph made = AttentionWriter(step, std::move(plans->plans)).write();
  std::ranges::move(plans->warnings, std::back_inserter(made.warnings));
  return made;
}

}  // namespace perfmodel
