#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "builders/emit/collectives.hpp"
#include "builders/emit/memory.hpp"
#include "builders/emit/pointwise.hpp"
#include "ops/catalogue.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "rewrite/graph_copy.hpp"
#include "rewrite/tensor_places.hpp"
#include "step/backward_pass.hpp"
#include "step/dialect.hpp"
#include "step/step_view.hpp"
#include "tensor_parallel_sizes.hpp"
#include "tensor_parallel_split.hpp"

namespace perfmodel {
namespace {

// Backward functions that hand a gradient on as it is: a sum over ranks can wait until behind them.
bool hands_on(std::string_view function) {
  constexpr std::array<std::string_view, 7> kNames = {
      "ViewBackward",      "UnsafeViewBackward", "ReshapeAliasBackward", "TBackward",
      "TransposeBackward", "PermuteBackward",    "ToCopyBackward"};
  return std::ranges::any_of(kNames,
                             [&](std::string_view name) { return function.starts_with(name); });
}

// The op of a forward pass, as the program called it, around ops that are split.
struct SplitOp {
  std::vector<const SplitProduct*> columns, rows;
  std::vector<std::int32_t> embeddings, whole_embeddings, losses;
};

// Copies a graph and writes the collectives in. Sizes are those of the whole model; divided() makes
// them those of one rank.
class TensorParallelWriter {
 public:
  TensorParallelWriter(const ExecutionGraph& graph, const TensorParallelOptions& options,
                       const TensorSplit& split, const std::vector<TokenShape>& tokens,
                       std::vector<bool> partial_nodes)
      : source_(graph),
        sequence_parallel_(options.sequence_parallel),
        tokens_(tokens),
        parameters_(split.parameters),
        partial_nodes_(std::move(partial_nodes)),
        passes_(passes_of_nodes(graph)),
        copy_(graph, dialect_of(graph)),
        graph_(copy_.builder()),
        ranks_(graph_, 0, options.ranks, 1),
        done_(graph.nodes.size(), false) {
    note_writes();
    for (const SplitProduct& product : split.columns) {
      op_around(product.node).columns.push_back(&product);
      note_sequence(product.node, columns_by_sequence_, &product);
    }
    for (const SplitProduct& product : split.rows) {
      op_around(product.node).rows.push_back(&product);
      note_sequence(product.node, rows_by_sequence_, &product);
    }
    for (std::int32_t node : split.embeddings) {
      op_around(node).embeddings.push_back(node);
      note_sequence(node, rows_by_sequence_, static_cast<const SplitProduct*>(nullptr));
    }
    for (std::int32_t node : split.whole_embeddings) {
      if (!options.sequence_parallel || !looks_up_tokens(node)) continue;
      op_around(node).whole_embeddings.push_back(node);
      note_sequence(node, lookups_by_sequence_, node);
    }
    for (std::int32_t node : split.losses) op_around(node).losses.push_back(node);
  }

  ExecutionGraph write() {
    bool described = false;
    for (std::int32_t i = 0; i < std::ssize(source_.nodes); ++i) {
      if (done_[i]) continue;
      const Node& node = source_.node(i);
      if (const auto split = ops_.find(i); split != ops_.end()) {
        forward(i, split->second);
      } else if (is_unit_of_backward(i)) {
        backward(i);
      } else {
        copy(i);
        if (!described && i > 0 && node.is_structural && node.parent <= 0) {
          ranks_.describe_groups({});
          described = true;
        }
      }
    }
    return copy_.finish();
  }

  /// Of the graph that write() gave: nodes that allocate what is received, by id.
  const std::unordered_map<std::int64_t, TokensOf>& received() const { return received_; }

 private:
  template <class Kept>
  void note_sequence(std::int32_t index, std::unordered_map<std::int64_t, Kept>& by_sequence,
                     Kept kept) {
    if (source_.node(index).seq_id >= 0) by_sequence[source_.node(index).seq_id] = kept;
  }

  SplitOp& op_around(std::int32_t index) {
    std::int32_t outer = index;
    for (std::int32_t i = source_.node(index).parent; i >= 0; i = source_.node(i).parent) {
      const Node& node = source_.node(i);
      const bool op = !node.is_label && !node.is_structural && node.scope == Scope::kFunction &&
                      !is_evaluate_function(source_, node) &&
                      !source_.name(node).starts_with("CheckpointFunction");
      if (!op) break;
      outer = i;
    }
    return ops_[outer];
  }

  // A function that the engine runs, without one that holds a whole layer again.
  bool is_unit_of_backward(std::int32_t index) const {
    const Node& node = source_.node(index);
    if (passes_[index] != PassOfNode::kBackward) return false;
    if (!is_evaluate_function(source_, node) && node.scope != Scope::kBackward) return false;
    const std::int32_t function = function_of(index);
    return function < 0 || !source_.name(function).starts_with("CheckpointFunction");
  }

  std::int32_t function_of(std::int32_t index) const {
    if (source_.node(index).scope == Scope::kBackward) return index;
    for (std::int32_t child : source_.children(index)) {
      if (source_.node(child).scope == Scope::kBackward) return child;
    }
    return -1;
  }

  void copy(std::int32_t index) {
    copy_.copy(index);
    done_[index] = true;
    ExecutionGraph& made = graph_.graph_being_made();
    places_.apply(made, made.node(copy_.copied(index)));
    if (gathered_) {
      for_each_tensor(source_, source_.outputs(index), [&](const Tensor& tensor) {
        if (gathered_ && tensor.id == gathered_->of) gathered_.reset();
      });
    }
  }

  void copy_tree(std::int32_t index) {
    copy(index);
    for (std::int32_t child : source_.children(index)) copy_tree(child);
  }

  // The tokens of one rank that an all-gather sends.
  struct Part {
    std::int64_t id = 0;  // in the source
    TensorRef tensor;
  };

  // --- collectives -----------------------------------------------------------------------------

  // What stands for a tensor of the source now.
  template <class Emit>
  void with_current_tensors(Emit&& emit) {
    ExecutionGraph& made = graph_.graph_being_made();
    const std::size_t before = made.nodes.size();
    emit();
    for (std::size_t i = before; i < made.nodes.size(); ++i) places_.apply(made, made.nodes[i]);
  }

  TensorRef whole(std::uint32_t tensor) { return graph_.tensor_of_source(tensor); }

  // Memory for what comes from the other ranks.
  std::pair<TensorRef, Tensor> receive(std::uint32_t like, TokensOf tokens) {
    const Tensor& tensor = source_.tensors[like];
    const auto sizes = source_.shape(tensor);
    ExecutionGraph& made = graph_.graph_being_made();
    const std::size_t node = made.nodes.size();
    const TensorRef memory = empty(graph_, tensor.dtype, Shape(sizes.begin(), sizes.end()));
    received_[made.nodes[node].id] = tokens;
    return {memory, made.tensors[made.outputs(made.nodes[node])[0].index]};
  }

  Tensor gather(TensorRef part, std::uint32_t like) {
    const auto [memory, tensor] = receive(like, TokensOf::kAllRanks);
    with_current_tensors([&, memory = memory] { ranks_.all_gather(memory, part); });
    return tensor;
  }

  // Sums a tensor over the ranks; with sequence parallelism each keeps its tokens alone.
  void sum(std::uint32_t tensor) {
    if (!sequence_parallel_) {
      with_current_tensors([&] { ranks_.all_reduce(whole(tensor)); });
      return;
    }
    const auto [memory, made] = receive(tensor, TokensOf::kOneRank);
    with_current_tensors([&, memory = memory] { ranks_.reduce_scatter(memory, whole(tensor)); });
    places_.replace(source_.tensors[tensor].id, made);
  }

  // The gathered input of several products that read the same tensor.
  const Tensor& gathered(const Part& part, std::uint32_t like) {
    if (!gathered_ || gathered_->of != part.id || gathered_->rank != source_.tensors[like].rank) {
      gathered_ = {part.id, source_.tensors[like].rank, gather(part.tensor, like)};
    }
    return gathered_->tensor;
  }

  // --- forward ---------------------------------------------------------------------------------

  // The tensor outside of an op that a product inside reads, or of which it reads a cast copy.
  std::uint32_t input_from_outside(std::int32_t op, std::uint32_t input) const {
    const Tensor& inner = source_.tensors[input];
    std::optional<std::uint32_t> same, alike;
    for (const Argument& argument : source_.inputs(op)) {
      if (argument.kind != Argument::Kind::kTensor) continue;
      const Tensor& outer = source_.tensors[argument.index];
      if (outer.id == inner.id) return argument.index;
      if (parameters_.contains(outer.id)) continue;
      const bool shares = inner.storage_id != 0 && outer.storage_id == inner.storage_id;
      if (!same && shares) same = argument.index;
      if (!alike && outer.numel == inner.numel) alike = argument.index;
    }
    return same ? *same : alike.value_or(input);
  }

  void forward(std::int32_t index, const SplitOp& op) {
    const bool gathers = sequence_parallel_ && !op.columns.empty();
    if (gathers) {
      copy_.close_beside(index);
      const std::uint32_t input = input_from_outside(index, op.columns.front()->input);
      // Taken before the copy of this mention is replaced.
      const Part part = {source_.tensors[input].id, whole(input)};
      for (const SplitProduct* product : op.columns) {
        // Of a cast copy all tokens are kept, as PyTorch's DTensor keeps them under autocast.
        const bool is_cast = source_.tensors[product->input].dtype != source_.tensors[input].dtype;
        if (!is_cast) parts_[product->node] = part;
      }
      const Tensor all = gathered(part, input);
      places_.begin_scope();
      places_.replace(part.id, all);
    }
    for (std::int32_t lookup : op.whole_embeddings) {
      copy_.close_beside(index);
      take_tokens(lookup);
    }
    copy_tree(index);
    if (gathers || !op.whole_embeddings.empty()) places_.end_scope();
    if (!op.rows.empty() || !op.embeddings.empty()) {
      copy_.close_beside(index);
      sum(first_output(index));
    }
    for (std::int32_t loss : op.losses) {
      copy_.close_beside(index);
      sum_losses(loss);
    }
  }

  std::uint32_t indices_of(std::int32_t lookup) const { return source_.inputs(lookup)[1].index; }

  // Indices [B, S] or [1, S].
  bool looks_up_tokens(std::int32_t lookup) const {
    const auto inputs = source_.inputs(lookup);
    if (inputs.size() < 2 || inputs[1].kind != Argument::Kind::kTensor) return false;
    const auto sizes = source_.shape(source_.tensors[inputs[1].index]);
    if (sizes.size() != 2) return false;
    return std::ranges::any_of(tokens_, [&](const TokenShape& one) {
      return sizes[1] == one.length && (sizes[0] == one.batch || sizes[0] == 1);
    });
  }

  // Positions and types of this rank's tokens alone.
  void take_tokens(std::int32_t lookup) {
    const TensorRef all = whole(indices_of(lookup));
    const Shape sizes = graph_.shape(all);
    const TensorRef part = graph_.new_view(all, sizes, contiguous_strides(sizes));
    ExecutionGraph& made = graph_.graph_being_made();
    const std::size_t node = made.nodes.size();
    with_current_tensors([&] {
      graph_.leaf_op("aten::slice.Tensor", {all, 1, 0, sizes[1], 1}, {part});
    });
    received_[made.nodes[node].id] = TokensOf::kViewOfOneRank;
    const Tensor tensor = made.tensors[made.outputs(made.nodes[node])[0].index];
    tokens_of_lookup_[lookup] = tensor;
    places_.begin_scope();
    places_.replace(source_.tensors[indices_of(lookup)].id, tensor);
  }

  std::uint32_t first_output(std::int32_t index) const {
    const auto outputs = source_.outputs(index);
    PERFMODEL_CHECK(!outputs.empty() && outputs[0].kind == Argument::Kind::kTensor);
    return outputs[0].index;
  }

  // Megatron's vocab_parallel_cross_entropy sums three numbers per token: the largest score, the
  // score of the right word and the sum of the exponentials.
  void sum_losses(std::int32_t loss) {
    const Tensor& scores = source_.tensors[first_output(loss)];
    const Shape rows = {scores.rank > 0 ? source_.shape(scores)[0] : 1};
    std::vector<TensorRef> sums;
    for (int k = 0; k < 3; ++k) {
      sums.push_back(empty(graph_, DType::kFloat32, rows));
      ranks_.all_reduce(sums.back());
    }
    binary(graph_, "aten::sub.Tensor", sums[2],
           binary(graph_, "aten::sub.Tensor", sums[0], sums[1]));
  }

  // --- backward --------------------------------------------------------------------------------

  void backward(std::int32_t index) {
    const std::int32_t function = function_of(index);
    const std::string_view name = function >= 0 ? source_.name(function) : std::string_view();
    const bool passes = hands_on(name);
    const std::int64_t sequence = function >= 0 ? source_.node(function).seq_id : -1;
    if (function >= 0) resolve(index, function, passes);
    places_.begin_scope();
    if (sequence_parallel_ && function >= 0 && sequence >= 0) gather_for(index, function, sequence);
    copy_backward(index, passes);
    places_.end_scope();
    for (const auto& [id, tensor] : renamed_) places_.replace(id, tensor);
    renamed_.clear();
  }

  // Gradients whose sum over the ranks cannot wait: behind functions that hand a gradient on as it
  // is, only those wait that owe no residual.
  void resolve(std::int32_t index, std::int32_t function, bool passes) {
    std::vector<std::uint32_t> open;
    for (const Argument& argument : source_.inputs(function)) {
      if (argument.kind != Argument::Kind::kTensor) continue;
      const std::int64_t id = source_.tensors[argument.index].id;
      if (partial_.contains(id) && (!passes || owed_.contains(id))) open.push_back(argument.index);
    }
    for (std::uint32_t tensor : open) {
      const std::int64_t id = source_.tensors[tensor].id;
      if (!partial_.contains(id)) continue;
      copy_.close_beside(index);
      sum(tensor);
      add_owed(tensor);
      const std::int64_t storage = source_.tensors[tensor].storage_id;
      std::erase_if(partial_, [&](const auto& one) {
        return one.first == id || (storage != 0 && one.second == storage);
      });
    }
  }

  // --- residuals of layers with a norm behind them -----------------------------------------------

  // The last node that writes a tensor with an id: recordings use ids again.
  void note_writes() {
    if (!sequence_parallel_) return;
    for (std::int32_t i = 0; i < std::ssize(source_.nodes); ++i) {
      for_each_tensor(source_, source_.outputs(i),
                      [&](const Tensor& tensor) { last_write_[tensor.id] = i; });
    }
  }

  // A name that stays what it is until the sum over the ranks: another view, where the id comes
  // again.
  Tensor lasting(std::uint32_t entry, std::int32_t sum) {
    const std::int64_t id = source_.tensors[entry].id;
    if (last_write_.at(id) <= sum) return places_.current(source_.tensors[entry]);
    const TensorRef now = whole(entry);
    const Shape sizes = graph_.shape(now);
    const TensorRef view = graph_.new_view(now, sizes, contiguous_strides(sizes));
    ExecutionGraph& made = graph_.graph_being_made();
    const std::size_t node = made.nodes.size();
    with_current_tensors([&] { graph_.leaf_op("aten::detach", {now}, {view}); });
    return made.tensors[made.outputs(made.nodes[node])[0].index];
  }

  // The residual's gradient has the tokens of one rank, the partial sum those of all: their sum
  // waits until the partial one is summed over the ranks, with all that is added to it meanwhile.
  bool defers(std::int32_t index) {
    const Node& node = source_.node(index);
    if (!sequence_parallel_ || !is_sum(source_.name(node))) return false;
    std::optional<std::uint32_t> partial, complete;
    for (const Argument& argument : source_.inputs(node)) {
      if (argument.kind != Argument::Kind::kTensor) continue;
      const Tensor& tensor = source_.tensors[argument.index];
      if (!tensor.on_gpu()) continue;
      (partial_.contains(tensor.id) ? partial : complete) = argument.index;
    }
    const auto outputs = source_.outputs(node);
    if (!partial || !complete || outputs.empty() || outputs[0].kind != Argument::Kind::kTensor) {
      return false;
    }
    const Tensor part = source_.tensors[*partial], made = source_.tensors[outputs[0].index];
    if (part.numel != source_.tensors[*complete].numel) return false;
    copy_.close_beside(index);
    std::vector<Owed> owed = std::move(owed_[part.id]);
    owed_.erase(part.id);
    owed.push_back({*complete, lasting(*complete, index)});
    const Tensor stands = made.id == part.id ? places_.current(part) : lasting(*partial, index);
    partial_.erase(part.id);
    partial_[made.id] = made.storage_id;
    owed_[made.id] = std::move(owed);
    renamed_.emplace_back(made.id, stands);
    places_.replace(made.id, stands);
    mark_done(index);
    return true;
  }

  void mark_done(std::int32_t index) {
    done_[index] = true;
    for (std::int32_t child : source_.children(index)) mark_done(child);
  }

  void add_owed(std::uint32_t summed) {
    const auto owed = owed_.find(source_.tensors[summed].id);
    if (owed == owed_.end()) return;
    for (const Owed& one : owed->second) {
      const TensorRef of_ranks = whole(summed), residual = whole(one.entry);
      ExecutionGraph& made = graph_.graph_being_made();
      const std::size_t node = made.nodes.size();
      with_current_tensors([&] { binary(graph_, "aten::add.Tensor", of_ranks, residual); });
      Tensor& second = made.tensors[made.inputs(made.nodes[node])[1].index];
      second.id = one.tensor.id;
      second.storage_id = one.tensor.storage_id;
      second.offset = one.tensor.offset;
      const Tensor total = made.tensors[made.outputs(made.nodes[node])[0].index];
      places_.replace(source_.tensors[summed].id, total);
    }
    owed_.erase(owed);
  }

  // With sequence parallelism the gradient of a sum over ranks is gathered, and so is once more the
  // input of a product that is cut by columns, for of it each rank keeps its tokens alone.
  void gather_for(std::int32_t index, std::int32_t function, std::int64_t sequence) {
    if (const auto lookup = lookups_by_sequence_.find(sequence);
        lookup != lookups_by_sequence_.end()) {
      const auto part = tokens_of_lookup_.find(lookup->second);
      if (part == tokens_of_lookup_.end()) return;
      places_.replace(source_.tensors[indices_of(lookup->second)].id, part->second);
    } else if (rows_by_sequence_.contains(sequence)) {
      const auto inputs = source_.inputs(function);
      if (inputs.empty() || inputs[0].kind != Argument::Kind::kTensor) return;
      copy_.close_beside(index);
      const Tensor all = gather(whole(inputs[0].index), inputs[0].index);
      places_.replace(source_.tensors[inputs[0].index].id, all);
    } else if (const auto column = columns_by_sequence_.find(sequence);
               column != columns_by_sequence_.end()) {
      const SplitProduct& product = *column->second;
      const auto part = parts_.find(product.node);
      if (part == parts_.end()) return;
      copy_.close_beside(index);
      const Tensor all = gathered(part->second, product.input);
      places_.replace(source_.tensors[product.input].id, all);
    }
  }

  void copy_backward(std::int32_t index, bool passes) {
    if (defers(index)) return;
    copy(index);
    note_partial(index, passes);
    for (std::int32_t child : source_.children(index)) copy_backward(child, passes);
  }

  void note_partial(std::int32_t index, bool passes) {
    const Node& node = source_.node(index);
    const std::string_view name = source_.name(node);
    bool partial = partial_nodes_[index];
    std::vector<Owed> owed;
    if (!partial && (passes || is_sum(name) || is_view(name))) {
      for_each_tensor(source_, source_.inputs(node), [&](const Tensor& tensor) {
        partial |= partial_.contains(tensor.id);
        const auto at = owed_.find(tensor.id);
        if (at == owed_.end() || !is_sum(name)) return;
        owed.insert(owed.end(), at->second.begin(), at->second.end());
        owed_.erase(at);
      });
    }
    for_each_tensor(source_, source_.outputs(node), [&](const Tensor& tensor) {
      owed_.erase(tensor.id);
      if (partial) {
        partial_[tensor.id] = tensor.storage_id;
        if (!owed.empty()) owed_[tensor.id] = owed;
      } else {
        partial_.erase(tensor.id);
      }
    });
  }

  static bool is_view(std::string_view name) {
    const Op* op = find_op(name);
    return op && op->kind == OpKind::kView;
  }

  struct Gathered {
    std::int64_t of = 0;  // id
    std::uint16_t rank = 0;
    Tensor tensor;
  };

  // What is added to a partial sum once it is summed: its mention in the source, and what stands
  // for it.
  struct Owed {
    std::uint32_t entry = 0;
    Tensor tensor;
  };

  const ExecutionGraph& source_;
  const bool sequence_parallel_;
  const std::vector<TokenShape> tokens_;
  const std::unordered_map<std::int64_t, std::size_t>& parameters_;
  const std::vector<bool> partial_nodes_;
  const std::vector<PassOfNode> passes_;
  GraphCopy copy_;
  GraphBuilder& graph_;
  Communicator ranks_;
  TensorPlaces places_;
  std::vector<bool> done_;
  std::unordered_map<std::int32_t, SplitOp> ops_;
  std::unordered_map<std::int64_t, const SplitProduct*> columns_by_sequence_, rows_by_sequence_;
  std::unordered_map<std::int64_t, std::int32_t> lookups_by_sequence_;  // whole tables
  std::unordered_map<std::int32_t, Tensor> tokens_of_lookup_;
  std::unordered_map<std::int32_t, Part> parts_;            // by product
  std::unordered_map<std::int64_t, std::int64_t> partial_;  // ids of gradients -> storages
  std::optional<Gathered> gathered_;
  std::unordered_map<std::int64_t, std::vector<Owed>> owed_;   // by id of the partial sum
  std::unordered_map<std::int64_t, std::int32_t> last_write_;  // by id
  std::vector<std::pair<std::int64_t, Tensor>> renamed_;       // when the function is written
  std::unordered_map<std::int64_t, TokensOf> received_;
};

Result<void> check_tensor_parallel(const ExecutionGraph& graph,
                                   const TensorParallelOptions& options) {
  constexpr std::int64_t kMostRanks = 1 << 20;
  if (options.ranks < 1 || options.ranks > kMostRanks) {
    return fail(ErrorCode::kImpossible,
                fmt::format("tensor-parallel: expected 1 to {} ranks, found {}", kMostRanks,
                            options.ranks));
  }
  return check_graph(graph, "tensor-parallel", {.no_collectives = true});
}

// The sequences that the token embedding looks up, of a decoder behind those of its encoder.
Result<std::vector<TokenShape>> token_shapes(const ExecutionGraph& graph, const TensorSplit& split,
                                             std::int64_t ranks) {
  std::vector<TokenShape> shapes;
  for (std::int32_t lookup : split.embeddings) {
    const auto inputs = graph.inputs(lookup);
    if (inputs.size() < 2 || inputs[1].kind != Argument::Kind::kTensor) continue;
    const auto sizes = graph.shape(graph.tensors[inputs[1].index]);
    if (sizes.size() != 2) continue;
    if (sizes[1] % ranks != 0) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("tensor-parallel: expected sequences that divide by {} ranks, found "
                              "{} tokens",
                              ranks, sizes[1]));
    }
    shapes.push_back({sizes[0], sizes[1]});
  }
  if (!shapes.empty()) return shapes;
  return fail(ErrorCode::kImpossible,
              "tensor-parallel: expected a lookup of tokens for sequence parallelism, found none");
}

}  // namespace

Result<ExecutionGraph> make_tensor_parallel(const ExecutionGraph& graph,
                                            const TensorParallelOptions& options) {
  if (auto good = check_tensor_parallel(graph, options); !good) return Unexpected{good.error()};
  if (options.ranks == 1) return graph;
  const auto split = find_tensor_split(graph, options.ranks);
  if (!split) return Unexpected{split.error()};
  TensorParallelSizes sizes{.ranks = options.ranks, .split = &*split};
  if (options.sequence_parallel) {
    auto tokens = token_shapes(graph, *split, options.ranks);
    if (!tokens) return Unexpected{tokens.error()};
    sizes.tokens = std::move(*tokens);
  }
  auto partial = partial_sums(graph, sizes);
  if (!partial) return Unexpected{partial.error()};
  TensorParallelWriter writer(graph, options, *split, sizes.tokens, std::move(*partial));
  const ExecutionGraph whole = writer.write();
  for (std::size_t i = 0; i < whole.nodes.size(); ++i) {
    const auto at = writer.received().find(whole.nodes[i].id);
    if (at != writer.received().end()) sizes.received[static_cast<std::int32_t>(i)] = at->second;
  }
  return divided(whole, sizes);
}

}  // namespace perfmodel
