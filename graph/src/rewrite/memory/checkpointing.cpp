#include "perfmodel/graph/rewrites/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "builders/emit/graph_views.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/update.hpp"
#include "checkpoint_segments.hpp"
#include "checkpointing.hpp"
#include "kept_dropout.hpp"
#include "ops/catalogue.hpp"
#include "ops/schemas.hpp"
#include "recomputed_tensors.hpp"
#include "rewrite/graph_copy.hpp"
#include "rewrite/tensor_places.hpp"
#include "step/autograd_names.hpp"
#include "step/dialect.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;

class Checkpointing {
 public:
  Checkpointing(const ExecutionGraph& graph, const BackwardPass& pass,
                const std::vector<Segment>& segments, bool keeps_masks,
                const std::vector<bool>& kept)
      : graph_(graph),
        pass_(pass),
        segments_(segments),
        keeps_masks_(keeps_masks),
        kept_(kept),
        copy_(graph, dialect_of(graph)),
        builder_(copy_.builder()),
        left_out_(graph.nodes.size()) {
    for (const BackwardFunction& function : pass.functions) {
      last_function_ = std::max(last_function_, function.sequence);
    }
    for (std::size_t k = 0; k < segments.size(); ++k) plan(k);
    next_sequence_ = pass.last_sequence + 1 - saved_.back();
  }

  ExecutionGraph run() {
    const auto count = static_cast<std::int32_t>(graph_.nodes.size());
    for (std::int32_t i = 0; i < count; ++i) {
      const std::int32_t parent = graph_.node(i).parent;
      if (parent >= 0 && left_out_[parent]) left_out_[i] = true;
      if (const auto found = forward_at_.find(i); found != forward_at_.end()) {
        write_forward(segments_[found->second], sequences_[found->second]);
      } else if (const auto last = backward_at_.find(i); last != backward_at_.end()) {
        write_backward(segments_[last->second], sequences_[last->second]);
      } else if (!left_out_[i]) {
        copy_outside(i);
      }
    }
    return copy_.finish();
  }

 private:
  const BackwardFunction& function(std::int32_t index) const { return pass_.functions[index]; }
  ExecutionGraph& made() { return builder_.graph_being_made(); }

  // A checkpoint takes one number where its ops took many.
  void plan(std::size_t k) {
    const Segment& segment = segments_[k];
    for (std::int32_t tree : segment.trees) left_out_[tree] = true;
    forward_at_[segment.trees.front()] = k;
    for (std::int32_t f = segment.functions_begin; f < segment.functions_end; ++f) {
      left_out_[function(f).evaluate] = true;
    }
    backward_at_[function(segment.functions_begin).evaluate] = k;
    sequences_.push_back(segment.first - saved_.back());
    ends_.push_back(segment.behind);
    saved_.push_back(saved_.back() + segment.behind - segment.first - 1);
  }

  std::int64_t sequence_outside(std::int32_t index) const {
    const std::int64_t old = graph_.node(index).seq_id;
    if (old < 0) return old;
    const auto behind = std::upper_bound(ends_.begin(), ends_.end(), old);
    std::int64_t number = old - saved_[behind - ends_.begin()];
    // Where the backward pass runs on the thread of the program, it counts on.
    if (old > last_function_ && graph_.node(index).thread == backward_thread_)
      number += recomputed_;
    return number;
  }

  void copy_outside(std::int32_t index) {
    copy_.copy(index);
    made().nodes.back().seq_id = sequence_outside(index);
    if (pass_.in_backward[index]) places_.apply(made(), made().nodes.back());
  }

  // Opens a copy of a node under what is open on `thread`.
  Node& open(Node copy, std::int32_t thread) {
    copy.thread = thread;
    builder_.copy_node(copy);
    return made().nodes.back();
  }

  Node& open(std::string_view name, std::int32_t thread) {
    Node copy;
    copy.name = made().names.intern(name);
    return open(copy, thread);
  }

  void write_forward(const Segment& segment, std::int64_t sequence) {
    const std::int32_t thread = graph_.node(segment.trees.front()).thread;
    copy_.close_beside(segment.trees.front());
    std::vector<Value> inputs;
    for (std::uint32_t input : segment.inputs) inputs.push_back(builder_.tensor_of_source(input));
    builder_.begin_plain("CheckpointFunction", std::move(inputs), sequence);
    for (std::int32_t tree : segment.trees) {
      walk_tree(
          graph_, tree,
          [&](std::int32_t index) {
            open(graph_.node(index), thread).seq_id = -1;  // under no_grad
            if (!kept_[index]) leave_out_log_sum_exp();
            return true;
          },
          [&] { builder_.close(); });
    }
    builder_.end_op();
  }

  // The memory-efficient kernel writes it for a backward pass alone.
  void leave_out_log_sum_exp() {
    Node& last = made().nodes.back();
    const std::string_view name = made().name(last);
    const bool whole = name == "aten::_scaled_dot_product_efficient_attention";
    if (whole || name == "aten::_efficient_attention_forward") {
      const std::uint32_t flag = whole ? 4 : 10, sums = 1;
      if (last.inputs_count <= flag || last.outputs_count <= sums) return;
      own_arguments(builder_, last);
      made().arguments[last.inputs_begin + flag].integer = 0;
      log_sum_exp_ = no_rows(made().arguments[last.outputs_begin + sums]);
    } else if (name == "aten::empty" && last.outputs_count == 1 && last.inputs_count > 0 &&
               log_sum_exp_ != 0 && tensor_of(graph_.outputs(last)[0]).id == log_sum_exp_) {
      own_arguments(builder_, last);
      const Argument sizes = made().arguments[last.inputs_begin];
      if (sizes.count > 0) made().arguments[sizes.index + sizes.count - 1].integer = 0;
      no_rows(made().arguments[last.outputs_begin]);
    }
  }

  // Makes the last dimension 0. Gives the tensor's id.
  std::int64_t no_rows(const Argument& argument) {
    if (argument.kind != Kind::kTensor) return 0;
    Tensor& tensor = made().tensors[argument.index];
    const auto old = made().shape(tensor);
    std::vector<std::int64_t> sizes(old.begin(), old.end());
    if (!sizes.empty()) sizes.back() = 0;
    tensor.numel = 0;
    tensor.shape_begin = static_cast<std::uint32_t>(made().shape_pool.size());
    made().shape_pool.insert(made().shape_pool.end(), sizes.begin(), sizes.end());
    return tensor.id;
  }

  void write_backward(const Segment& segment, std::int64_t sequence) {
    const BackwardFunction& first = function(segment.functions_begin);
    backward_thread_ = graph_.node(first.function).thread;
    copy_.close_beside(first.evaluate);
    const std::int64_t evaluate =
        open(fmt::format("{}{}", kEvaluate, kCheckpointBackward), backward_thread_).id;
    const Tensor gradient = open_function(first, sequence, evaluate);
    places_.begin_scope();
    const std::int64_t numbers = next_sequence_ - segment.first;
    recompute(segment, gradient, numbers);
    const std::vector<std::pair<const InputGradient*, Left>> left =
        write_functions(segment, gradient, numbers);
    places_.end_scope();
    builder_.close();
    for (const auto& [part, gone] : left) hand_over(*part, gone);
    builder_.close();
    next_sequence_ += segment.behind - segment.first;
    recomputed_ += segment.behind - segment.first;
  }

  // Of what is kept, views run again, for backward functions read views of recomputed tensors.
  bool is_view(const Node& node) const {
    if (node.children_count > 0) return false;
    const Op* op = find_op(graph_.name(node));
    return op != nullptr && op->kind == OpKind::kView;
  }

  // Gives the gradient that it takes.
  Tensor open_function(const BackwardFunction& first, std::int64_t sequence,
                       std::int64_t evaluate) {
    Node copy = graph_.node(first.function);
    copy.name = made().names.intern(kCheckpointBackward);
    copy.seq_id = sequence;
    std::uint32_t taken = 0;  // a function of several outputs may get undefined ones
    while (taken + 1 < copy.inputs_count &&
           tensor_of(graph_.inputs(copy)[taken]).dtype == DType::kUnknown) {
      ++taken;
    }
    std::tie(copy.inputs_begin, copy.inputs_count) =
        builder_.copy_arguments(copy.inputs_begin + taken, 1);
    copy.outputs_count = 0;
    const std::int64_t forward_parent = graph_.node(first.function).fw_parent;
    Node& last = open(copy, backward_thread_);
    last.fw_parent =
        forward_parent == graph_.node(first.evaluate).id ? evaluate : copied(forward_parent);
    places_.apply(made(), last);
    return made().tensors[made().arguments[last.inputs_begin].index];
  }

  const Tensor& tensor_of(const Argument& argument) const {
    static const Tensor kNoTensor;
    return argument.kind == Kind::kTensor ? graph_.tensors[argument.index] : kNoTensor;
  }

  // Id of the copy of a node of the source; 0: not copied by itself.
  std::int64_t copied(std::int64_t id) {
    const auto found = std::lower_bound(
        graph_.nodes.begin(), graph_.nodes.end(), id,
        [](const Node& candidate, std::int64_t wanted) { return candidate.id < wanted; });
    if (found == graph_.nodes.end() || found->id != id) return 0;
    const std::int32_t copy = copy_.copied(static_cast<std::int32_t>(found - graph_.nodes.begin()));
    return copy < 0 ? 0 : made().node(copy).id;
  }

  TensorRef ref(const Tensor& tensor) {
    made().tensors.push_back(tensor);
    return builder_.tensor_of_source(static_cast<std::uint32_t>(made().tensors.size() - 1));
  }

  // A view of all of it, as x.detach() gives it.
  Tensor detach(const Tensor& x) {
    perfmodel::detach(builder_, ref(x));
    return made().tensors.back();
  }

  // torch.cuda.set_rng_state() clones the state: seed and offset, in host memory.
  void set_random_state() {
    if (!builder_.pytorch().on_gpu()) return;
    clone(builder_, builder_.new_tensor(DType::kUInt8, GraphBuilder::cpu(), {16}));
  }

  void recompute(const Segment& segment, const Tensor& gradient, std::int64_t numbers) {
    RecomputedTensors tensors(builder_, ids_, places_);
    set_random_state();
    for (std::uint32_t input : segment.inputs) {
      const Tensor x = graph_.tensors[input];
      tensors.stand_in(x, detach(x));
    }
    std::vector<bool> written;  // of the nodes that are open
    const auto close = [&] {
      if (written.back()) {
        tensors.close();
        builder_.close();
      }
      written.pop_back();
    };
    for (std::int32_t tree : segment.trees) {
      walk_tree(
          graph_, tree,
          [&](std::int32_t index) {
            written.push_back(!kept_[index] || is_view(graph_.node(index)));
            if (!written.back()) return true;
            const bool draws = keeps_masks_ && draws_mask(graph_, graph_.node(index));
            Node copy =
                draws ? scaled_by_kept_mask(builder_, graph_.node(index)) : graph_.node(index);
            if (!draws) own_arguments(builder_, copy);
            tensors.open(copy);
            if (copy.seq_id >= 0) copy.seq_id += numbers;
            open(copy, backward_thread_);
            if (draws) close();
            return !draws;
          },
          close);
    }
    set_random_state();
    if (builder_.pytorch().before(2, 1)) {
      const TensorRef output = ref(places_.current(graph_.tensors[segment.output]));
      builder_.leaf_op("aten::is_same_size", {output, ref(gradient)}, {true});
    }
  }

  // What went elsewhere before the segment's first part of a gradient arrived.
  struct Left {
    std::optional<Tensor> before;
    Tensor gradient;  // what the segment hands over
  };

  std::vector<std::pair<const InputGradient*, Left>> write_functions(const Segment& segment,
                                                                     const Tensor& gradient,
                                                                     std::int64_t numbers) {
    std::vector<std::pair<const InputGradient*, Left>> left;
    std::unordered_map<std::int32_t, std::size_t> dropped;  // sum -> gradient
    for (const InputGradient& part : segment.gradients) {
      if (part.sum_before >= 0) dropped[part.sum_before] = left.size();
      left.push_back({&part, {}});
    }
    auto next = left.begin();
    for (std::int32_t f = segment.functions_begin; f < segment.functions_end; ++f) {
      write_function(f, gradient, numbers, [&](std::int32_t sum) {
        const auto found = dropped.find(sum);
        if (found != dropped.end()) left[found->second].second.before = drop(sum);
        return found != dropped.end();
      });
      if (next == left.end() || next->first->edges.back().from != f) continue;
      // Gradients of parameters stand in front where their arguments do.
      const std::int32_t own = parameters_in_front(segment, f);
      for (; f - next->first->edges.back().from < own; ++f) {
        write_function(f + 1, gradient, numbers, [](std::int32_t) { return false; });
      }
      const std::int32_t from = next->first->edges.back().from;
      for (; next != left.end() && next->first->edges.back().from == from; ++next) {
        next->second.gradient = accumulate(places_.current(handed_over(*next->first)));
      }
    }
    return left;
  }

  // The last sum of the segment's parts, as the source calls it.
  const Tensor& handed_over(const InputGradient& part) const {
    const GradientEdge& last = part.edges.back();
    const bool summed = last.sum >= 0 && last.sum != part.sum_before;
    return summed ? tensor_of(graph_.outputs(last.sum)[0]) : graph_.tensors[last.tensor];
  }

  // How many of the functions behind `f` accumulate parameters that its op takes in front of the
  // segment's input: both are ready at once, and the engine takes them in the order of arguments.
  std::int32_t parameters_in_front(const Segment& segment, std::int32_t f) const {
    const std::int32_t forward = function(f).forward;
    if (forward < 0) return 0;
    const auto& producers = pass_.input_producers[forward];
    std::int32_t count = 0;
    std::size_t k = 0;
    bool found = false;
    for_each_tensor(graph_, graph_.inputs(forward), [&](const Tensor& tensor) {
      const std::int64_t producer = k < producers.size() ? producers[k] : -1;
      ++k;
      const std::int32_t next = f + count + 1;
      found |= producer >= 0 && producer < segment.first;
      if (found || producer >= 0 || next >= segment.functions_end) return;
      if (function(next).accumulates() && takes_shape(next, tensor)) ++count;
    });
    return found ? count : 0;
  }

  bool takes_shape(std::int32_t f, const Tensor& parameter) const {
    const auto inputs = graph_.inputs(function(f).function);
    if (inputs.empty()) return false;
    const auto a = graph_.shape(tensor_of(inputs[0])), b = graph_.shape(parameter);
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

  // `leave_out`: sums of gradients that do not stand inside any more.
  template <class LeaveOut>
  void write_function(std::int32_t f, const Tensor& gradient, std::int64_t numbers,
                      LeaveOut&& leave_out) {
    const std::int32_t evaluate = function(f).evaluate;
    walk_tree(
        graph_, evaluate,
        [&](std::int32_t index) {
          const bool on_top = graph_.node(index).parent == evaluate;
          if (on_top && leave_out(index)) return false;
          const std::int64_t parent = made().nodes[builder_.innermost()].id;
          Node& last = open(graph_.node(index), backward_thread_);
          if (last.scope == Scope::kBackward) {
            last.fw_thread = backward_thread_;
            last.fw_parent = parent;
          }
          if (last.seq_id >= 0) last.seq_id += numbers;
          places_.apply(made(), last);
          if (on_top) keep_gradient(last, gradient);
          return true;
        },
        [&] { builder_.close(); });
  }

  // The program holds the gradient that came in, so nothing is added to it in place.
  void keep_gradient(Node& sum, const Tensor& gradient) {
    if (made().name(sum) != "aten::add_" || sum.outputs_count == 0) return;
    const Argument left = made().arguments[sum.inputs_begin];
    const Argument output = made().arguments[sum.outputs_begin];
    if (left.kind != Kind::kTensor || output.kind != Kind::kTensor) return;
    if (made().tensors[left.index].storage_id != gradient.storage_id) return;
    sum.name = made().names.intern("aten::add");
    sum.op_schema = made().names.intern(schema_of("aten::add.Tensor"));
    Tensor result = made().tensors[output.index];
    result.id = ids_.next(builder_);
    result.storage_id = ids_.next(builder_);
    result.offset = 0;
    made().tensors[output.index] = result;
    places_.replace(graph_.tensors[output.index].id, result);
  }

  // The segment's first part of a sum stands for the sum. Gives what it would have been added to.
  Tensor drop(std::int32_t sum) {
    const auto inputs = graph_.inputs(sum);
    const Tensor before = places_.current(tensor_of(inputs[0]));
    const Tensor part = places_.current(tensor_of(inputs[1]));
    places_.replace(tensor_of(graph_.outputs(sum)[0]).id, part);
    return before;
  }

  // A detached input is a leaf that keeps its gradient.
  Tensor accumulate(const Tensor& gradient) {
    const std::int64_t evaluate =
        open(fmt::format("{}{}", kEvaluate, kAccumulate), backward_thread_).id;
    Node leaf;
    leaf.name = made().names.intern(kAccumulate);
    leaf.scope = Scope::kBackward;
    leaf.fw_thread = backward_thread_;
    leaf.fw_parent = evaluate;
    std::tie(leaf.inputs_begin, leaf.inputs_count) = builder_.append({ref(gradient)});
    open(leaf, backward_thread_);
    const Tensor kept = detach(gradient);
    builder_.close();
    builder_.close();
    return kept;
  }

  // Out of the checkpoint, to what came before.
  void hand_over(const InputGradient& part, const Left& left) {
    const std::int64_t old = handed_over(part).id;
    if (!left.before) {
      places_.replace(old, left.gradient);
      return;
    }
    const TensorRef before = ref(*left.before), gradient = ref(left.gradient);
    if (graph_.name(part.sum_before) == "aten::add_") {
      add_(builder_, before, gradient);
      places_.replace(old, *left.before);
      return;
    }
    const TensorRef sum =
        builder_.new_tensor(left.gradient.dtype, left.gradient.device, builder_.shape(gradient));
    builder_.leaf_op("aten::add.Tensor", {before, gradient, 1}, {sum});
    const Node& last = made().nodes.back();
    places_.replace(old, made().tensors[made().outputs(last)[0].index]);
  }

  const ExecutionGraph& graph_;
  const BackwardPass& pass_;
  const std::vector<Segment>& segments_;
  const bool keeps_masks_;
  const std::vector<bool>& kept_;  // nodes that do not run again
  GraphCopy copy_;
  GraphBuilder& builder_;
  std::vector<bool> left_out_;  // nodes that stand in a checkpoint
  std::unordered_map<std::int32_t, std::size_t> forward_at_, backward_at_;  // node -> segment
  std::vector<std::int64_t> sequences_;                                     // of the checkpoints
  std::vector<std::int64_t> ends_;         // numbers behind each segment
  std::vector<std::int64_t> saved_ = {0};  // numbers that are not taken any more, up to there
  std::int64_t last_function_ = -1;        // largest number of a function
  std::int64_t next_sequence_ = 0;         // of recomputed ops
  std::int64_t recomputed_ = 0;            // numbers taken by them
  std::int32_t backward_thread_ = -1;
  std::int64_t log_sum_exp_ = 0;  // id of the one that was left out last
  TensorPlaces places_;           // in the backward pass
  FreshIds ids_;
};

// The outermost op around a node inside of a tree.
std::int32_t outermost_op(const ExecutionGraph& graph, std::int32_t tree, std::int32_t node) {
  std::int32_t op = node;
  for (std::int32_t i = node; i >= tree; i = graph.node(i).parent) {
    if (!graph.node(i).is_label) op = i;
  }
  return op;
}

// Whose results torchtitan keeps with selective checkpointing "op": products of a matrix with a
// weight are counted per layer, the first, third, ... are kept (`_save_list` and `_custom_policy`
// of its parallelize_llama.py).
bool is_kept_op(const ExecutionGraph& graph, const Node& node, int& products) {
  const std::string_view name = graph.name(node);
  if (name == "aten::mm" || name == "aten::addmm") return ++products % 2 != 0;
  const Op* op = find_op(name);
  return op != nullptr && op->kind == OpKind::kAttention && name.starts_with("aten::_scaled_dot");
}

std::vector<bool> kept_nodes(const ExecutionGraph& graph, const std::vector<Segment>& segments,
                             bool products) {
  std::vector<bool> kept(graph.nodes.size());
  if (!products) return kept;
  for (const Segment& segment : segments) {
    int count = 0;
    for (const std::int32_t tree : segment.trees) {
      const std::int32_t end = last_below(graph, tree);
      for (std::int32_t i = tree; i <= end; ++i) {
        if (!is_kept_op(graph, graph.node(i), count)) continue;
        const std::int32_t op = outermost_op(graph, tree, i);
        const std::int32_t last = last_below(graph, op);
        for (std::int32_t inside = op; inside <= last; ++inside) {
          kept[inside] = true;
        }
      }
    }
  }
  return kept;
}

bool draws_in_forward_pass(const ExecutionGraph& graph, const std::vector<Segment>& segments) {
  for (const Segment& segment : segments) {
    const std::int32_t end = last_below(graph, segment.trees.back());
    for (std::int32_t i = segment.trees.front(); i <= end; ++i) {
      if (draws_mask(graph, graph.node(i))) return true;
    }
  }
  return false;
}

}  // namespace

ExecutionGraph write_checkpoints(const StepView& step, const std::vector<Segment>& segments,
                                 KeptInside kept) {
  const std::vector<bool> nodes = kept_nodes(step.graph(), segments, kept.products);
  return Checkpointing(step.graph(), step.backward(), segments, kept.masks, nodes).run();
}

Result<ExecutionGraph> rewrite_checkpointing(const ExecutionGraph& source,
                                             const CheckpointOptions& options) {
  if (options.every < 0) {
    return refuse_checkpointing(
        fmt::format("expected at least 0 layers per segment, found {}", options.every));
  }
  if (options.layers && *options.layers < 1) {
    return refuse_checkpointing(
        fmt::format("expected at least the first layer, found {} layers", *options.layers));
  }
  const StepView step(source);
  if (auto good = step.check("checkpointing", kRecomputationNeeds); !good) {
    return Unexpected{good.error()};
  }
  const auto segments = checkpoint_segments(step.graph(), step.backward(), options);
  if (!segments) return Unexpected{segments.error()};
  if (options.keep_masks && !draws_in_forward_pass(step.graph(), *segments)) {
    return refuse_checkpointing(
        "expected aten::native_dropout, whose masks can be kept, found none (retarget the graph of "
        "a "
        "CPU first)");
  }
  return write_checkpoints(step, *segments,
                           {.masks = options.keep_masks, .products = options.keep_products});
}

}  // namespace perfmodel
