#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "builders/emit/collectives.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/pointwise.hpp"
#include "ops/catalogue.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite/graph_copy.hpp"
#include "rewrite/tensor_places.hpp"
#include "step/dialect.hpp"
#include "step/step_view.hpp"
#include "tensor_parallel_sizes.hpp"
#include "tensor_parallel_split.hpp"

namespace perfmodel {
namespace {

using SplitKind = SplitOp::Kind;

// Backward functions that hand a gradient on as it is: a sum over ranks can wait until after them.
bool hands_on(std::string_view function) {
  constexpr std::array<std::string_view, 7> kNames = {
      "ViewBackward",      "UnsafeViewBackward", "ReshapeAliasBackward", "TBackward",
      "TransposeBackward", "PermuteBackward",    "ToCopyBackward"};
  return std::ranges::any_of(kNames,
                             [&](std::string_view name) { return function.starts_with(name); });
}

bool is_view(std::string_view name) {
  const Op* op = find_op(name);
  return op && op->kind == OpKind::kView;
}

std::optional<std::uint32_t> tensor_argument(std::span<const Argument> arguments, std::size_t at) {
  if (at >= arguments.size() || arguments[at].kind != Argument::Kind::kTensor) return std::nullopt;
  return arguments[at].index;
}

// The op as the program called it.
std::int32_t outermost_op(const ExecutionGraph& graph, std::int32_t index) {
  const auto is_op = [&](const Node& node) {
    return !node.is_label && !node.is_structural && node.scope == Scope::kFunction &&
           !is_evaluate_function(graph, node) &&
           !graph.name(node).starts_with("CheckpointFunction");
  };
  std::int32_t parent = graph.node(index).parent;
  while (parent >= 0 && is_op(graph.node(parent))) {
    index = std::exchange(parent, graph.node(parent).parent);
  }
  return index;
}

// The function that the engine runs there, unless it holds a whole layer again; -1: none.
std::int32_t function_of(const ExecutionGraph& graph, std::int32_t index) {
  std::int32_t function = graph.node(index).scope == Scope::kBackward ? index : -1;
  if (is_evaluate_function(graph, graph.node(index))) {
    for (const std::int32_t child : graph.children(index)) {
      if (function < 0 && graph.node(child).scope == Scope::kBackward) function = child;
    }
  }
  const bool is_layer = function >= 0 && graph.name(function).starts_with("CheckpointFunction");
  return is_layer ? -1 : function;
}

// The tensor outside of an op that a product inside reads, or of which it reads a cast copy.
std::uint32_t input_from_outside(const ExecutionGraph& graph, const TensorSplit& split,
                                 std::int32_t op, std::uint32_t input) {
  const Tensor& inner = graph.tensors[input];
  std::optional<std::uint32_t> same, alike;
  for (const Argument& argument : graph.inputs(op)) {
    if (argument.kind != Argument::Kind::kTensor) continue;
    const Tensor& outer = graph.tensors[argument.index];
    if (outer.id == inner.id) return argument.index;
    if (split.cut[outer] >= 0) continue;
    const bool shares = inner.storage_id != 0 && outer.storage_id == inner.storage_id;
    if (!same && shares) same = argument.index;
    if (!alike && outer.numel == inner.numel) alike = argument.index;
  }
  return same ? *same : alike.value_or(input);
}

// Whether indices are [B, S] or [1, S].
bool looks_up_tokens(const ExecutionGraph& graph, std::int32_t lookup,
                     const std::vector<TokenShape>& tokens) {
  const auto indices = tensor_argument(graph.inputs(lookup), 1);
  if (!indices) return false;
  const auto sizes = graph.shape(graph.tensors[*indices]);
  return sizes.size() == 2 && std::ranges::any_of(tokens, [&](const TokenShape& one) {
           return sizes[1] == one.length && (sizes[0] == one.batch || sizes[0] == 1);
         });
}

std::uint32_t first_output(const ExecutionGraph& graph, std::int32_t index) {
  const auto output = tensor_argument(graph.outputs(index), 0);
  if (!output) throw Contradiction(fmt::format("{} has no result", graph.name(index)));
  return *output;
}

/// Gradients of which each rank has an addend, and the tensors to add once the addends are summed.
class PartialSums {
 public:
  /// `nodes`: those that give a partial sum.
  PartialSums(const StepView& step, std::vector<bool> nodes)
      : graph_(step.graph()),
        nodes_(std::move(nodes)),
        is_partial_(step.storages()),
        residuals_(step.tensors()) {}

  bool contains(const Tensor& tensor) const {
    return tensor.storage_id != 0 && is_partial_[tensor];
  }
  bool has_residuals(const Tensor& tensor) const { return !residuals_[tensor].empty(); }
  std::vector<TensorRef> take_residuals(const Tensor& tensor) {
    return std::exchange(residuals_[tensor], {});
  }
  void complete(const Tensor& tensor) { is_partial_[tensor] = false; }

  /// Addends of an op, into ExecutionGraph::tensors.
  struct Addends {
    std::uint32_t partial = 0, residual = 0;
  };
  /// Says whether a node adds a complete gradient to a partial one.
  std::optional<Addends> addends(std::int32_t sum) const {
    if (!is_sum(graph_.name(sum)) || !tensor_argument(graph_.outputs(sum), 0)) return std::nullopt;
    std::optional<std::uint32_t> partial, residual;
    for (const Argument& argument : graph_.inputs(sum)) {
      if (argument.kind != Argument::Kind::kTensor) continue;
      const Tensor& tensor = graph_.tensors[argument.index];
      if (tensor.on_gpu()) (contains(tensor) ? partial : residual) = argument.index;
    }
    const bool are_alike =
        partial && residual && graph_.tensors[*partial].numel == graph_.tensors[*residual].numel;
    return are_alike ? std::optional(Addends{*partial, *residual}) : std::nullopt;
  }

  /// The partial addend is the sum until `residual` is added.
  void defer(const Tensor& partial, const Tensor& sum, TensorRef residual) {
    auto residuals = take_residuals(partial);
    residuals.push_back(residual);
    is_partial_[partial] = false;
    is_partial_[sum] = true;
    residuals_[sum] = std::move(residuals);
  }

  /// After a node of a backward function; `passes`: one that hands gradients on.
  void follow(std::int32_t index, bool passes) {
    const std::string_view name = graph_.name(index);
    const bool adds = is_sum(name);
    bool partial = nodes_[index];
    std::vector<TensorRef> residuals;
    if (!partial && (passes || adds || is_view(name))) {
      for_each_tensor(graph_, graph_.inputs(index), [&](const Tensor& tensor) {
        partial |= contains(tensor);
        if (!adds) return;
        const auto added = take_residuals(tensor);
        residuals.insert(residuals.end(), added.begin(), added.end());
      });
    }
    for_each_tensor(graph_, graph_.outputs(index), [&](const Tensor& tensor) {
      is_partial_[tensor] = partial;
      residuals_[tensor] = partial ? residuals : std::vector<TensorRef>();
    });
  }

 private:
  const ExecutionGraph& graph_;
  const std::vector<bool> nodes_;
  FactsOfValues<bool> is_partial_;  // by storage
  FactsOfValues<std::vector<TensorRef>> residuals_;
};

// Copies a graph and writes the collectives in. It writes sizes of the whole model; divided() cuts
// them to one rank.
class TensorParallelWriter {
 public:
  TensorParallelWriter(const StepView& step, const TensorParallelOptions& options,
                       const TensorSplit& split, const std::vector<TokenShape>& tokens,
                       std::vector<bool> partial_nodes)
      : source_(step.graph()),
        sequence_parallel_(options.sequence_parallel),
        split_(split),
        copy_(source_, dialect_of(source_)),
        builder_(copy_.builder()),
        ranks_(builder_, 0, options.ranks, 1),
        done_(source_.nodes.size()),
        partial_(step, std::move(partial_nodes)) {
    for (const SplitOp& op : split.ops) {
      const bool stays = op.kind == SplitKind::kWholeLookup &&
                         (!sequence_parallel_ || !looks_up_tokens(source_, op.node, tokens));
      if (stays) continue;
      split_ops_[outermost_op(source_, op.node)].push_back(&op);
      const std::int64_t sequence = source_.node(op.node).seq_id;
      if (sequence >= 0 && op.kind != SplitKind::kLoss) by_sequence_[sequence] = &op;
    }
  }

  ExecutionGraph write() {
    bool described = false;
    for (std::int32_t i = 0; i < std::ssize(source_.nodes); ++i) {
      if (done_[i]) continue;
      if (const auto ops = split_ops_.find(i); ops != split_ops_.end()) {
        forward(i, ops->second);
      } else if (const std::int32_t function = function_of(source_, i); function >= 0) {
        backward(i, function);
      } else {
        copy(i);
        const Node& node = source_.node(i);
        if (described || i == 0 || !node.is_structural || node.parent > 0) continue;
        ranks_.describe_groups({});
        described = true;
      }
    }
    return copy_.finish();
  }

  /// In the graph that write() gave: nodes that allocate what is received.
  const std::unordered_map<std::int32_t, TokensOf>& received() const { return received_; }

 private:
  void copy(std::int32_t index) {
    copy_.copy(index);
    done_[index] = true;
    ExecutionGraph& made = builder_.graph_being_made();
    places_.apply(made, made.nodes.back());
    for_each_tensor(source_, source_.outputs(index), [&](const Tensor& tensor) {
      if (gathered_ && tensor.id == gathered_->of) gathered_.reset();
    });
  }

  void copy_tree(std::int32_t index) {
    copy(index);
    for (const std::int32_t child : source_.children(index)) copy_tree(child);
  }

  // --- collectives -----------------------------------------------------------------------------

  // A tensor of the source, or the one in its place now.
  TensorRef current(std::uint32_t entry) {
    return builder_.tensor_of_source(places_.current(source_.tensors[entry]));
  }
  void replace(std::uint32_t entry, TensorRef by) {
    places_.replace(source_.tensors[entry].id, builder_.mention_of(by));
  }

  std::int32_t next_node() {
    return static_cast<std::int32_t>(builder_.graph_being_made().nodes.size());
  }

  // Memory for data from the other ranks.
  TensorRef receive(std::uint32_t like, TokensOf tokens) {
    const auto sizes = source_.shape(source_.tensors[like]);
    received_[next_node()] = tokens;
    return empty(builder_, source_.tensors[like].dtype, Shape(sizes.begin(), sizes.end()));
  }

  TensorRef gather(std::uint32_t part, std::uint32_t like) {
    const TensorRef all = receive(like, TokensOf::kAllRanks);
    ranks_.all_gather(all, current(part));
    return all;
  }

  // Sums a tensor over the ranks; with sequence parallelism each keeps its tokens alone.
  void sum(std::uint32_t tensor) {
    if (!sequence_parallel_) {
      ranks_.all_reduce(current(tensor));
      return;
    }
    const TensorRef part = receive(tensor, TokensOf::kOneRank);
    ranks_.reduce_scatter(part, current(tensor));
    replace(tensor, part);
  }

  // The gathered input of several products that read the same tensor.
  TensorRef gathered(std::uint32_t part, std::uint32_t like) {
    const std::int64_t id = source_.tensors[part].id;
    const std::uint16_t rank = source_.tensors[like].rank;
    if (!gathered_ || gathered_->of != id || gathered_->rank != rank) {
      const TensorRef all = gather(part, like);
      gathered_ = {.of = id, .rank = rank, .tensor = all};
    }
    return gathered_->tensor;
  }

  // --- forward ---------------------------------------------------------------------------------

  void forward(std::int32_t index, const std::vector<const SplitOp*>& ops) {
    const auto column = std::ranges::find(ops, SplitKind::kColumns, &SplitOp::kind);
    places_.begin_scope();
    if (sequence_parallel_ && column != ops.end()) {
      copy_.close_beside(index);
      const std::uint32_t input = input_from_outside(source_, split_, index, (*column)->input);
      for (const SplitOp* product : ops) {
        // A cast copy keeps all tokens, as PyTorch's DTensor keeps them under autocast.
        if (product->kind != SplitKind::kColumns) continue;
        const bool is_cast =
            source_.tensors[product->input].storage_id != source_.tensors[input].storage_id;
        if (!is_cast) parts_[product->node] = input;
      }
      replace(input, gathered(input, input));
    }
    for (const SplitOp* op : ops) {
      if (op->kind != SplitKind::kWholeLookup) continue;
      copy_.close_beside(index);
      take_tokens(op->node);
    }
    copy_tree(index);
    places_.end_scope();
    const bool sums = std::ranges::any_of(ops, [](const SplitOp* op) {
      return op->kind == SplitKind::kRows || op->kind == SplitKind::kLookup;
    });
    if (sums) {
      copy_.close_beside(index);
      sum(first_output(source_, index));
    }
    for (const SplitOp* op : ops) {
      if (op->kind != SplitKind::kLoss) continue;
      copy_.close_beside(index);
      sum_losses(op->node);
    }
  }

  std::uint32_t indices_of(std::int32_t lookup) const { return source_.inputs(lookup)[1].index; }

  // Positions and types of this rank's tokens alone.
  void take_tokens(std::int32_t lookup) {
    const TensorRef all = current(indices_of(lookup));
    const Shape sizes = builder_.shape(all);
    const TensorRef part = builder_.new_view(all, sizes, contiguous_strides(sizes));
    received_[next_node()] = TokensOf::kViewOfOneRank;
    builder_.leaf_op("aten::slice.Tensor", {all, 1, 0, sizes[1], 1}, {part});
    tokens_of_lookup_[lookup] = part;
    replace(indices_of(lookup), part);
  }

  // Megatron's vocab_parallel_cross_entropy sums three numbers per token: the largest score, the
  // score of the right word and the sum of the exponentials.
  void sum_losses(std::int32_t loss) {
    const Tensor& scores = source_.tensors[first_output(source_, loss)];
    const Shape rows = {scores.rank > 0 ? source_.shape(scores)[0] : 1};
    std::vector<TensorRef> sums;
    for (int k = 0; k < 3; ++k) {
      sums.push_back(empty(builder_, DType::kFloat32, rows));
      ranks_.all_reduce(sums.back());
    }
    binary(builder_, "aten::sub.Tensor", sums[2],
           binary(builder_, "aten::sub.Tensor", sums[0], sums[1]));
  }

  // --- backward --------------------------------------------------------------------------------

  void backward(std::int32_t index, std::int32_t function) {
    const bool passes = hands_on(source_.name(function));
    sum_open_gradients(index, function, passes);
    places_.begin_scope();
    const auto op = by_sequence_.find(source_.node(function).seq_id);
    if (sequence_parallel_ && op != by_sequence_.end()) gather_for(index, *op->second, function);
    copy_backward(index, passes);
    places_.end_scope();
    for (const auto& [id, tensor] : renamed_) places_.replace(id, tensor);
    renamed_.clear();
  }

  // Sums gradients whose sum over the ranks cannot wait. In functions that hand a gradient on as it
  // is, the sum can wait if no residual is added to it.
  void sum_open_gradients(std::int32_t index, std::int32_t function, bool passes) {
    for (const Argument& argument : source_.inputs(function)) {
      if (argument.kind != Argument::Kind::kTensor) continue;
      const Tensor& gradient = source_.tensors[argument.index];
      const bool waits = passes && !partial_.has_residuals(gradient);
      if (waits || !partial_.contains(gradient)) continue;
      copy_.close_beside(index);
      sum(argument.index);
      for (const TensorRef residual : partial_.take_residuals(gradient)) {
        replace(argument.index,
                binary(builder_, "aten::add.Tensor", current(argument.index), residual));
      }
      partial_.complete(gradient);
    }
  }

  // With sequence parallelism the gradient of a sum over ranks is gathered. So is, once more, the
  // input of a product that is cut by columns, because each rank keeps only its own tokens of it.
  void gather_for(std::int32_t index, const SplitOp& op, std::int32_t function) {
    if (op.kind == SplitKind::kWholeLookup) {
      const auto part = tokens_of_lookup_.find(op.node);
      if (part != tokens_of_lookup_.end()) replace(indices_of(op.node), part->second);
    } else if (op.kind == SplitKind::kColumns) {
      const auto part = parts_.find(op.node);
      if (part == parts_.end()) return;
      copy_.close_beside(index);
      replace(op.input, gathered(part->second, op.input));
    } else if (const auto gradient = tensor_argument(source_.inputs(function), 0)) {
      copy_.close_beside(index);
      replace(*gradient, gather(*gradient, *gradient));
    }
  }

  void copy_backward(std::int32_t index, bool passes) {
    if (defers(index)) return;
    copy(index);
    partial_.follow(index, passes);
    for (const std::int32_t child : source_.children(index)) copy_backward(child, passes);
  }

  // The residual's gradient has the tokens of one rank, but the partial sum has the tokens of all.
  // So adding them waits until the partial sum is summed over the ranks, with all that is added to
  // it meanwhile.
  bool defers(std::int32_t index) {
    const auto addends = sequence_parallel_ ? partial_.addends(index) : std::nullopt;
    if (!addends) return false;
    const Tensor& partial = source_.tensors[addends->partial];
    const Tensor& sum = source_.tensors[first_output(source_, index)];
    partial_.defer(partial, sum, current(addends->residual));
    renamed_.emplace_back(sum.id, places_.current(partial));
    places_.replace(sum.id, renamed_.back().second);
    mark_done(index);
    return true;
  }

  void mark_done(std::int32_t index) {
    done_[index] = true;
    for (const std::int32_t child : source_.children(index)) mark_done(child);
  }

  struct Gathered {
    std::int64_t of = 0;  // id
    std::uint16_t rank = 0;
    TensorRef tensor;
  };

  const ExecutionGraph& source_;
  const bool sequence_parallel_;
  const TensorSplit& split_;
  GraphCopy copy_;
  GraphBuilder& builder_;
  Communicator ranks_;
  TensorPlaces places_;
  std::vector<bool> done_;  // by node
  PartialSums partial_;
  std::map<std::int32_t, std::vector<const SplitOp*>> split_ops_;  // by the outermost op
  std::map<std::int64_t, const SplitOp*> by_sequence_;             // autograd's number
  std::map<std::int32_t, TensorRef> tokens_of_lookup_;             // by node
  std::map<std::int32_t, std::uint32_t> parts_;  // by product: what is gathered as its input
  std::optional<Gathered> gathered_;
  std::vector<std::pair<std::int64_t, Tensor>> renamed_;  // when the function is written
  std::unordered_map<std::int32_t, TokensOf> received_;
};

Unexpected refuse_tensor_parallel(std::string message) {
  return fail(ErrorCode::kImpossible, "tensor-parallel: " + std::move(message));
}

// The sequences that the token embedding looks up: first the encoder's, then the decoder's.
Result<std::vector<TokenShape>> token_shapes(const ExecutionGraph& graph, const TensorSplit& split,
                                             std::int64_t ranks) {
  std::vector<TokenShape> shapes;
  for (const SplitOp& op : split.ops) {
    const auto indices = tensor_argument(graph.inputs(op.node), 1);
    if (op.kind != SplitKind::kLookup || !indices) continue;
    const auto sizes = graph.shape(graph.tensors[*indices]);
    if (sizes.size() != 2) continue;
    if (sizes[1] % ranks != 0) {
      return refuse_tensor_parallel(fmt::format(
          "expected sequences that divide by {} ranks, found {} tokens", ranks, sizes[1]));
    }
    shapes.push_back({sizes[0], sizes[1]});
  }
  if (!shapes.empty()) return shapes;
  return refuse_tensor_parallel("expected a lookup of tokens for sequence parallelism, found none");
}

}  // namespace

Result<ExecutionGraph> make_tensor_parallel(const ExecutionGraph& graph,
                                            const TensorParallelOptions& options) {
  constexpr std::int64_t kMostRanks = 1 << 20;
  if (options.ranks < 1 || options.ranks > kMostRanks) {
    return refuse_tensor_parallel(
        fmt::format("expected 1 to {} ranks, found {}", kMostRanks, options.ranks));
  }
  const StepView step(graph);
  if (auto good = step.check("tensor-parallel", {.no_collectives = true, .eager = true}); !good) {
    return Unexpected{good.error()};
  }
  if (options.ranks == 1) return graph;
  PERFMODEL_TRY(split, find_tensor_split(step, options.ranks));
  TensorParallelSizes sizes{.ranks = options.ranks, .source = &step.graph(), .split = &*split};
  if (options.sequence_parallel) {
    PERFMODEL_TRY(tokens, token_shapes(step.graph(), *split, options.ranks));
    sizes.tokens = std::move(*tokens);
  }
  PERFMODEL_TRY(partial, partial_sums(sizes));
  TensorParallelWriter writer(step, options, *split, sizes.tokens, std::move(*partial));
  const ExecutionGraph whole = writer.write();
  sizes.received = writer.received();
  return divided(whole, sizes);
}

}  // namespace perfmodel
