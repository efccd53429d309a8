#include "perfmodel/graph/rewrites/training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "builders/emit/graph_views.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/update.hpp"
#include "checkpointing.hpp"
#include "ops/catalogue.hpp"
#include "ops/rows.hpp"
#include "rerun_ops.hpp"
#include "rewrite/graph_edit.hpp"
#include "rewrite/tensor_places.hpp"
#include "step/autograd_names.hpp"
#include "step/dialect.hpp"
#include "step/tree_walk.hpp"

namespace perfmodel {
namespace {

using Kind = Argument::Kind;

// A gradient that a segment hands over to a function outside.
struct HandedOver {
  const InputGradient* part = nullptr;
  std::optional<Tensor> before;  // the gradient that came from elsewhere before the segment's first
                                 // part
  Tensor gradient;
};

const Tensor& tensor_of(const ExecutionGraph& graph, const Argument& argument) {
  static const Tensor kNoTensor;
  return argument.kind == Kind::kTensor ? graph.tensors[argument.index] : kNoTensor;
}

// The last sum of the segment's parts, as the source calls it.
const Tensor& handed_over(const ExecutionGraph& graph, const InputGradient& part) {
  const GradientEdge& last = part.edges.back();
  const bool summed = last.sum >= 0 && last.sum != part.sum_before;
  return summed ? tensor_of(graph, graph.outputs(last.sum)[0]) : graph.tensors[last.tensor];
}

// Counts the functions after `f` that accumulate parameters which its op takes in front of the
// segment's input: both are ready at once, and the engine takes them in the order of arguments.
std::int32_t parameters_in_front(const StepView& step, const Segment& segment, std::int32_t f) {
  const ExecutionGraph& graph = step.graph();
  const std::vector<BackwardFunction>& functions = step.backward().functions;
  const std::int32_t forward = functions[f].forward;
  if (forward < 0) return 0;
  const auto takes_shape = [&](const BackwardFunction& function, const Tensor& parameter) {
    const auto inputs = graph.inputs(function.function);
    return !inputs.empty() &&
           std::ranges::equal(graph.shape(tensor_of(graph, inputs[0])), graph.shape(parameter));
  };
  const auto& producers = step.backward().input_producers[forward];
  std::int32_t next = f + 1;
  std::size_t k = 0;
  bool found = false;
  for_each_tensor(graph, graph.inputs(forward), [&](const Tensor& tensor) {
    const std::int64_t producer = k < producers.size() ? producers[k] : -1;
    ++k;
    found |= producer >= 0 && producer < segment.first;
    if (found || producer >= 0 || next >= segment.functions_end) return;
    if (functions[next].accumulates() && takes_shape(functions[next], tensor)) ++next;
  });
  return found ? next - f - 1 : 0;
}

// Autograd's numbers of ops outside: a checkpoint takes one number where its ops took many.
class OutsideNumbers {
 public:
  // Gives the number of the checkpoint. In the order of the forward pass.
  std::int64_t add(const Segment& segment) {
    const std::int64_t number = segment.first - saved_.back();
    ends_.push_back(segment.behind);
    saved_.push_back(saved_.back() + segment.behind - segment.first - 1);
    return number;
  }
  std::int64_t saved() const { return saved_.back(); }
  std::int64_t of(std::int64_t old) const {
    return old - saved_[std::ranges::upper_bound(ends_, old) - ends_.begin()];
  }

 private:
  std::vector<std::int64_t> ends_;         // the number after each segment
  std::vector<std::int64_t> saved_ = {0};  // numbers that are not taken any more, up to there
};

// The memory-efficient kernel of attention writes log-sum-exps for a backward pass alone.
class LogSumExpRemover {
 public:
  // The node was copied last.
  void change(GraphBuilder& builder, Node& node) {
    ExecutionGraph& graph = builder.graph_being_made();
    const std::string_view name = graph.name(node);
    const bool whole = name == "aten::_scaled_dot_product_efficient_attention";
    if (whole || name == "aten::_efficient_attention_forward") {
      const std::uint32_t flag = whole ? 4 : 10, sums = 1;
      if (node.inputs_count <= flag || node.outputs_count <= sums) return;
      own_arguments(builder, node);
      graph.arguments[node.inputs_begin + flag].integer = 0;
      removed_ = make_empty(graph, graph.arguments[node.outputs_begin + sums]);
    } else if (name == "aten::empty" && node.outputs_count == 1 && node.inputs_count > 0 &&
               removed_ != 0 && tensor_of(graph, graph.outputs(node)[0]).id == removed_) {
      own_arguments(builder, node);
      const Argument sizes = graph.arguments[node.inputs_begin];
      if (sizes.count > 0) graph.arguments[sizes.index + sizes.count - 1].integer = 0;
      make_empty(graph, graph.arguments[node.outputs_begin]);
    }
  }

 private:
  // Makes the last dimension 0. Gives the tensor's id.
  static std::int64_t make_empty(ExecutionGraph& graph, const Argument& argument) {
    if (argument.kind != Kind::kTensor) return 0;
    Tensor& tensor = graph.tensors[argument.index];
    const auto old = graph.shape(tensor);
    std::vector<std::int64_t> sizes(old.begin(), old.end());
    if (!sizes.empty()) sizes.back() = 0;
    tensor.numel = 0;
    tensor.shape_begin = static_cast<std::uint32_t>(graph.shape_pool.size());
    graph.shape_pool.insert(graph.shape_pool.end(), sizes.begin(), sizes.end());
    return tensor.id;
  }

  std::int64_t removed_ = 0;  // id of the last tensor of sums
};

class CheckpointWriter {
 public:
  CheckpointWriter(const StepView& step, const std::vector<Segment>& segments, bool keeps_masks,
                   const std::vector<bool>& kept)
      : step_(step),
        graph_(step.graph()),
        pass_(step.backward()),
        keeps_masks_(keeps_masks),
        kept_(kept),
        edit_(graph_, dialect_of(graph_)),
        builder_(edit_.builder()) {
    for (const BackwardFunction& function : pass_.functions) {
      last_function_ = std::max(last_function_, function.sequence);
    }
    for (const Segment& segment : segments) replace(segment);
    next_sequence_ = pass_.last_sequence + 1 - numbers_.saved();
    edit_.on_each_copy([this](std::int32_t node, Node& copy) {
      if (copy.seq_id >= 0) copy.seq_id = numbers_.of(copy.seq_id) + recomputed_before(node);
      if (pass_.in_backward[node]) places_.apply(made(), copy);
    });
  }

  ExecutionGraph write() { return edit_.write(); }

 private:
  const BackwardFunction& function(std::int32_t index) const { return pass_.functions[index]; }
  ExecutionGraph& made() { return edit_.made(); }

  void replace(const Segment& segment) {
    const std::int64_t sequence = numbers_.add(segment);
    for (const std::int32_t tree : segment.trees) edit_.replace(tree);
    edit_.replace(segment.begin, [=, this, &segment] { write_forward(segment, sequence); });
    for (std::int32_t f = segment.functions_begin; f < segment.functions_end; ++f) {
      edit_.replace(function(f).evaluate);
    }
    edit_.replace(function(segment.functions_begin).evaluate,
                  [=, this, &segment] { write_backward(segment, sequence); });
  }

  // If the backward pass runs on the program's thread, that thread's count goes on.
  std::int64_t recomputed_before(std::int32_t node) const {
    const Node& outside = graph_.node(node);
    const bool is_behind = outside.seq_id > last_function_;
    return is_behind && outside.thread == backward_thread_ ? recomputed_ : 0;
  }

  // Opens a copy of a node under the open node of `thread`.
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
    const std::int32_t thread = graph_.node(segment.begin).thread;
    edit_.copy().close_beside(segment.begin);
    std::vector<Value> inputs;
    for (const std::uint32_t input : segment.inputs) {
      inputs.push_back(builder_.tensor_of_source(input));
    }
    builder_.begin_plain("CheckpointFunction", std::move(inputs), sequence);
    const auto open_node = [&](std::int32_t node) {
      Node& copy = open(graph_.node(node), thread);
      copy.seq_id = -1;  // under no_grad
      if (!kept_[node]) log_sum_exp_.change(builder_, copy);
      return true;
    };
    for (const std::int32_t tree : segment.trees) {
      walk_tree(graph_, tree, open_node, [&] { builder_.close(); });
    }
    builder_.end_op();
  }

  void write_backward(const Segment& segment, std::int64_t sequence) {
    const BackwardFunction& first = function(segment.functions_begin);
    const std::int64_t count = segment.behind - segment.first;
    const std::int64_t later_by = next_sequence_ - segment.first;
    backward_thread_ = graph_.node(first.function).thread;
    edit_.copy().close_beside(first.evaluate);
    const std::int64_t evaluate =
        open(fmt::format("{}{}", kEvaluate, kCheckpointBackward), backward_thread_).id;
    const Tensor gradient = open_function(first, sequence, evaluate);
    places_.begin_scope();
    recompute(segment, gradient, later_by);
    const std::vector<HandedOver> gradients = write_functions(segment, gradient, later_by);
    places_.end_scope();
    builder_.close();
    for (const HandedOver& handed : gradients) hand_over(handed);
    builder_.close();
    next_sequence_ += count;
    recomputed_ += count;
  }

  // Gives the gradient that it takes.
  Tensor open_function(const BackwardFunction& first, std::int64_t sequence,
                       std::int64_t evaluate) {
    Node copy = graph_.node(first.function);
    copy.name = made().names.intern(kCheckpointBackward);
    copy.seq_id = sequence;
    std::uint32_t taken = 0;  // a function of several outputs may get undefined ones
    while (taken + 1 < copy.inputs_count &&
           tensor_of(graph_, graph_.inputs(copy)[taken]).dtype == DType::kUnknown) {
      ++taken;
    }
    std::tie(copy.inputs_begin, copy.inputs_count) =
        builder_.copy_arguments(copy.inputs_begin + taken, 1);
    copy.outputs_count = 0;
    const std::int64_t forward_parent = graph_.node(first.function).fw_parent;
    Node& last = open(copy, backward_thread_);
    last.fw_parent = forward_parent == graph_.node(first.evaluate).id
                         ? evaluate
                         : edit_.copy().id_of_copy(forward_parent);
    places_.apply(made(), last);
    return made().tensors[made().arguments[last.inputs_begin].index];
  }

  TensorRef ref(const Tensor& tensor) { return builder_.tensor_of_source(tensor); }

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

  void recompute(const Segment& segment, const Tensor& gradient, std::int64_t later_by) {
    RerunWriter rerun(step_, builder_, places_);
    set_random_state();
    for (const std::uint32_t input : segment.inputs) {
      rerun.replace_input(graph_.tensors[input], detach(graph_.tensors[input]));
    }
    for (const std::int32_t tree : segment.trees) {
      rerun.write(tree, {.thread = backward_thread_,
                         .later_by = later_by,
                         .keep_masks = keeps_masks_,
                         .kept = &kept_});
    }
    set_random_state();
    if (builder_.pytorch().before(2, 1)) {
      const TensorRef output = ref(places_.current(graph_.tensors[segment.output]));
      builder_.leaf_op("aten::is_same_size", {output, ref(gradient)}, {true});
    }
  }

  std::vector<HandedOver> write_functions(const Segment& segment, const Tensor& gradient,
                                          std::int64_t later_by) {
    std::vector<HandedOver> gradients;
    for (const InputGradient& part : segment.gradients) gradients.push_back({.part = &part});
    // A sum with gradients from elsewhere moves out.
    const auto leaves_out = [&](std::int32_t node) {
      const auto found = std::ranges::find(
          gradients, node, [](const HandedOver& handed) { return handed.part->sum_before; });
      if (found == gradients.end()) return false;
      found->before = drop(node);
      return true;
    };
    auto next = gradients.begin();
    for (std::int32_t f = segment.functions_begin; f < segment.functions_end; ++f) {
      write_function(f, gradient, later_by, leaves_out);
      const auto is_next = [&](std::int32_t from) {
        return next != gradients.end() && next->part->edges.back().from == from;
      };
      if (!is_next(f)) continue;
      // Gradients of parameters come before, if their arguments do.
      const std::int32_t from = f, own = parameters_in_front(step_, segment, f);
      while (f < from + own) {
        write_function(++f, gradient, later_by, [](std::int32_t) { return false; });
      }
      for (; is_next(from); ++next) {
        next->gradient = accumulate(places_.current(handed_over(graph_, *next->part)));
      }
    }
    return gradients;
  }

  template <class LeavesOut>
  void write_function(std::int32_t f, const Tensor& gradient, std::int64_t later_by,
                      LeavesOut&& leaves_out) {
    const std::int32_t evaluate = function(f).evaluate;
    const auto open_node = [&](std::int32_t node) {
      const bool on_top = graph_.node(node).parent == evaluate;
      if (on_top && leaves_out(node)) return false;
      const std::int64_t parent = made().nodes[builder_.innermost()].id;
      Node& last = open(graph_.node(node), backward_thread_);
      if (last.scope == Scope::kBackward) {
        last.fw_thread = backward_thread_;
        last.fw_parent = parent;
      }
      if (last.seq_id >= 0) last.seq_id += later_by;
      places_.apply(made(), last);
      if (on_top) keep_gradient(last, gradient);
      return true;
    };
    walk_tree(graph_, evaluate, open_node, [&] { builder_.close(); });
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
    Tensor& result = made().tensors[output.index];
    result.id = builder_.new_id();
    result.storage_id = builder_.new_id();
    result.offset = 0;
    places_.replace(graph_.tensors[output.index].id, result);
  }

  // The segment's first part of a sum replaces the sum. Returns the gradient that it would have
  // been added to.
  Tensor drop(std::int32_t sum) {
    const auto inputs = graph_.inputs(sum);
    const Tensor before = places_.current(tensor_of(graph_, inputs[0]));
    const Tensor part = places_.current(tensor_of(graph_, inputs[1]));
    places_.replace(tensor_of(graph_, graph_.outputs(sum)[0]).id, part);
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

  // Hands the gradient out of the checkpoint, added to earlier ones.
  void hand_over(const HandedOver& handed) {
    if (!handed.before) {
      return places_.replace(handed_over(graph_, *handed.part).id, handed.gradient);
    }
    const std::int64_t old = tensor_of(graph_, graph_.outputs(handed.part->edges.back().sum)[0]).id;
    const TensorRef before = ref(*handed.before), gradient = ref(handed.gradient);
    if (graph_.name(handed.part->sum_before) == "aten::add_") {
      add_(builder_, before, gradient);
      return places_.replace(old, *handed.before);
    }
    const TensorRef sum = builder_.new_tensor(handed.gradient.dtype, handed.gradient.device,
                                              builder_.shape(gradient));
    builder_.leaf_op("aten::add.Tensor", {before, gradient, 1}, {sum});
    places_.replace(old, builder_.mention_of(sum));
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  const BackwardPass& pass_;
  const bool keeps_masks_;
  const std::vector<bool>& kept_;  // nodes that do not run again
  GraphEdit edit_;
  GraphBuilder& builder_;
  OutsideNumbers numbers_;
  std::int64_t last_function_ = -1;  // largest number of a function
  std::int64_t next_sequence_ = 0;   // for recomputed ops
  std::int64_t recomputed_ = 0;      // numbers taken by them
  std::int32_t backward_thread_ = -1;
  LogSumExpRemover log_sum_exp_;
  TensorPlaces places_;  // in the backward pass
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

// Their views run again: backward functions read views of recomputed tensors.
bool is_view_alone(const ExecutionGraph& graph, const Node& node) {
  const Op* op = node.children_count > 0 ? nullptr : find_op(graph.name(node));
  return op != nullptr && op->kind == OpKind::kView;
}

std::vector<bool> kept_nodes(const ExecutionGraph& graph, const std::vector<Segment>& segments) {
  std::vector<bool> kept(graph.nodes.size());
  for (const Segment& segment : segments) {
    int count = 0;
    for (const std::int32_t tree : segment.trees) {
      const std::int32_t end = last_below(graph, tree);
      for (std::int32_t i = tree; i <= end; ++i) {
        if (!is_kept_op(graph, graph.node(i), count)) continue;
        const std::int32_t op = outermost_op(graph, tree, i);
        const std::int32_t last = last_below(graph, op);
        for (std::int32_t inside = op; inside <= last; ++inside) {
          kept[inside] = !is_view_alone(graph, graph.node(inside));
        }
      }
    }
  }
  return kept;
}

bool draws_in_forward_pass(const ExecutionGraph& graph, const std::vector<Segment>& segments) {
  return std::ranges::any_of(segments, [&](const Segment& segment) {
    return std::any_of(graph.nodes.begin() + segment.begin, graph.nodes.begin() + segment.end,
                       [&](const Node& node) { return draws_mask(graph, node); });
  });
}

}  // namespace

ExecutionGraph write_checkpoints(const StepView& step, const std::vector<Segment>& segments,
                                 KeptInside kept) {
  std::vector<bool> nodes(step.graph().nodes.size());
  if (kept.products) nodes = kept_nodes(step.graph(), segments);
  return CheckpointWriter(step, segments, kept.masks, nodes).write();
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
  PERFMODEL_TRY(segments, checkpoint_segments(step, options));
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
