#include "tensor_parallel_split.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/contains.hpp"
#include "ops/catalogue.hpp"

namespace perfmodel {
namespace {

Unexpected not_split(std::string message) {
  return fail(ErrorCode::kImpossible, "tensor-parallel: " + std::move(message));
}

// By node; ops that a checkpoint computes again count as forward.
std::vector<bool> forward_nodes(const ExecutionGraph& graph) {
  std::vector<bool> forward(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const std::string_view name = graph.name(node);
    const bool is_function = node.scope == Scope::kBackward;
    if (is_function || is_evaluate_function(graph, node)) {
      forward[i] = is_function && name.starts_with("CheckpointFunction");
    } else {
      forward[i] = !name.starts_with("Optimizer.") && (node.parent < 0 || forward[node.parent]);
    }
  }
  return forward;
}

/// The part of a tensor that one rank of several holds.
struct Holding {
  const Tensor* parameter = nullptr;  ///< the parameter that it is, or views
  bool turned = false;                ///< a transposed view
  std::set<std::size_t> products;     ///< it has a part of their columns; none: it is whole

  bool is_part() const { return !products.empty(); }
};

struct WeightProduct {
  std::int32_t node = -1;
  const Tensor *input = nullptr, *weight = nullptr, *bias = nullptr;
  std::int8_t cut = 0;  ///< dimension of the weight
  bool by_rows = false;
  bool used = false;     ///< by columns: another product takes its part
  bool is_head = false;  ///< gives the scores of words
};

struct TableLookup {
  std::int32_t node = -1;
  const Tensor* table = nullptr;
  std::int64_t rows = 0;
};

struct ForwardOps {
  std::vector<WeightProduct> products;
  std::vector<TableLookup> lookups;
  std::vector<std::int32_t> losses;    ///< log_softmax of parts
  std::int32_t experts = -1;           ///< the first product of several experts, -1: none
  std::vector<const Tensor*> refused;  ///< weights that cannot be cut
};

// One pass over the forward ops with a set of weights that stay whole.
class SplitWalk {
 public:
  SplitWalk(const StepView& step, const std::vector<bool>& forward,
            const FactsOfValues<bool>& whole)
      : graph_(step.graph()), forward_(forward), whole_(whole), holdings_(step.tensors()) {}

  ForwardOps run() {
    std::vector<bool> skipped(graph_.nodes.size());
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      skipped[i] = node.parent >= 0 && skipped[node.parent];
      if (skipped[i] || !forward_[i] || node.is_label) continue;
      skipped[i] = visit(static_cast<std::int32_t>(i));
    }
    return std::move(ops_);
  }

 private:
  // As nn.Linear does, and every product under autocast.
  bool calls_product(const Node& node) const {
    return std::ranges::any_of(graph_.children(node), [&](std::int32_t child) {
      const std::string_view name = graph_.name(child);
      const Op* op = find_op(name);
      return op && (op->kind == OpKind::kProduct || name == "aten::matmul");
    });
  }

  const Tensor* tensor(const Node& node, std::size_t at) const {
    const auto inputs = graph_.inputs(node);
    if (at >= inputs.size() || inputs[at].kind != Argument::Kind::kTensor) return nullptr;
    return &graph_.tensors[inputs[at].index];
  }

  // A tensor that no op made is a parameter if it holds floats.
  Holding holding(const Tensor& tensor) const {
    if (const auto& known = holdings_[tensor]) return *known;
    return {.parameter = is_floating_point(tensor.dtype) ? &tensor : nullptr};
  }

  void give(const Node& node, const Holding& made) {
    for_each_tensor(graph_, graph_.outputs(node), [&](const Tensor& tensor) {
      if (!is_undefined(tensor)) holdings_[tensor] = made;
    });
  }

  Holding joined(const Node& node) const {
    Holding made;
    for_each_tensor(graph_, graph_.inputs(node),
                    [&](const Tensor& tensor) { made.products.merge(holding(tensor).products); });
    return made;
  }

  void refuse(const Holding& part) {
    for (const std::size_t product : part.products)
      ops_.refused.push_back(ops_.products[product].weight);
  }
  void use(const Holding& part) {
    for (const std::size_t product : part.products) ops_.products[product].used = true;
  }

  // Whether the nodes below it are the op's own.
  bool visit(std::int32_t index) {
    const Node& node = graph_.node(index);
    const std::string_view name = graph_.name(node);
    const Op* op = find_op(name);
    if (name == "aten::_grouped_mm" && ops_.experts < 0) ops_.experts = index;
    if (!op) {
      give(node, joined(node));
      return false;
    }
    if (op->kind == OpKind::kView || op->kind == OpKind::kCast) {
      view(node, name);
      return true;
    }
    if (is_row_lookup(name)) {
      look_up(index);
      return true;
    }
    if (op->kind == OpKind::kProduct && !calls_product(node)) {
      give(node, multiply(index, *op));
      return true;
    }
    if (is_copy(name) && tensor(node, 1)) {
      give(node, holding(*tensor(node, 1)));
      return false;
    }
    give(node, result(index, *op));
    return op->kind != OpKind::kComposite && op->kind != OpKind::kWrapper &&
           op->kind != OpKind::kLoss && op->kind != OpKind::kProduct;
  }

  void view(const Node& node, std::string_view name) {
    const Tensor* x = tensor(node, 0);
    if (!x) return;
    Holding made = holding(*x);
    const bool turns = name == "aten::t" || name == "aten::transpose" || name == "aten::numpy_T";
    if (made.parameter && turns && x->rank == 2) made.turned = !made.turned;
    give(node, made);
  }

  void look_up(std::int32_t index) {
    const Node& node = graph_.node(index);
    const Tensor* table = tensor(node, 0);
    give(node, {});
    if (!table || table->rank != 2) return;
    const Tensor* parameter = holding(*table).parameter;
    if (parameter) ops_.lookups.push_back({index, parameter, graph_.shape(*table)[0]});
  }

  // x [M, K] times a weight [K, N].
  Holding multiply(std::int32_t index, const Op& op) {
    const Node& node = graph_.node(index);
    const std::size_t first = op.has_addend ? 1 : 0;
    const Tensor *x = tensor(node, first), *weight = tensor(node, first + 1);
    if (!x || !weight || weight->rank != 2) return joined(node);
    const Holding held = holding(*weight), data = holding(*x);
    if (!held.parameter || data.parameter) return joined(node);
    const bool of_linear = graph_.name(node) == "aten::linear";  // weight [N, K]
    WeightProduct made{.node = index, .input = x, .weight = held.parameter};
    made.by_rows = made.used = data.is_part();
    made.cut = made.by_rows == (held.turned != of_linear) ? 1 : 0;
    const Tensor* bias = op.has_addend ? tensor(node, 0) : of_linear ? tensor(node, 2) : nullptr;
    if (bias && bias->rank == 1) made.bias = bias;
    use(data);
    if (!made.by_rows && whole_[*made.weight]) return {};
    ops_.products.push_back(made);
    if (made.by_rows) return {};
    return {.products = {ops_.products.size() - 1}};
  }

  // Norms take whole rows, and an addend of a part of the columns must be a part, too.
  Holding result(std::int32_t index, const Op& op) {
    const Node& node = graph_.node(index);
    const std::string_view name = graph_.name(node);
    const Holding made = joined(node);
    const Tensor* x = tensor(node, 0);
    if (!made.is_part() || !x) return made;
    const Holding first = holding(*x);
    const bool is_leaf = node.children_count == 0;
    const bool over_columns = op.kind == OpKind::kNorm || name == "aten::mean" ||
                              name == "aten::var" || name == "aten::var_mean";
    // A norm of four dimensions normalizes single heads.
    if (over_columns && x->rank < 4 && first.is_part()) {
      refuse(first);
      return {};
    }
    if (name == "aten::log_softmax" || name == "aten::_log_softmax") {
      if (first.is_part() && is_leaf) ops_.losses.push_back(index);
      use(first);
      for (const std::size_t product : first.products) ops_.products[product].is_head = true;
      return is_leaf ? Holding() : made;
    }
    if (op.kind == OpKind::kLoss && is_leaf && first.is_part()) {
      refuse(first);
      return {};
    }
    if (op.kind != OpKind::kPointwise || !meets_whole(node)) return made;
    refuse(made);
    return {};
  }

  // Whether a whole tensor is combined with a part as large.
  bool meets_whole(const Node& node) const {
    std::int64_t largest = 0;
    for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
      if (holding(tensor).is_part()) largest = std::max(largest, tensor.numel);
    });
    bool meets = false;
    for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
      const Holding one = holding(tensor);
      // Tensors of four dimensions have heads: biases of scores by position are cut with the heads.
      meets |= !one.is_part() && !one.parameter && tensor.rank < 4 && tensor.numel == largest;
    });
    return meets;
  }

  const ExecutionGraph& graph_;
  const std::vector<bool>& forward_;
  const FactsOfValues<bool>& whole_;
  FactsOfValues<std::optional<Holding>> holdings_;
  ForwardOps ops_;
};

ForwardOps find_forward_ops(const StepView& step) {
  const std::vector<bool> forward = forward_nodes(step.graph());
  FactsOfValues<bool> whole(step.tensors());
  while (true) {
    ForwardOps ops = SplitWalk(step, forward, whole).run();
    for (const WeightProduct& product : ops.products) {
      // A refusal changes the ops after it, so ops that lead nowhere are known only after the last
      // refusal.
      if (ops.refused.empty() && !product.used) whole[*product.weight] = true;
    }
    for (const Tensor* weight : ops.refused) whole[*weight] = true;
    if (ops.refused.empty() && std::ranges::all_of(ops.products, &WeightProduct::used)) return ops;
  }
}

// The token embedding: the table that the output layer shares, else one with as many rows as there
// are words, else (no output layer) the largest.
const Tensor* token_table(const std::vector<TableLookup>& lookups, const TensorSplit& split,
                          const std::vector<std::int64_t>& words) {
  const auto first_of = [&](auto&& wanted) {
    const auto at = std::ranges::find_if(lookups, wanted);
    return at == lookups.end() ? nullptr : at->table;
  };
  const auto is_cut = [&](const TableLookup& one) { return split.cut[*one.table] >= 0; };
  if (const Tensor* tied = first_of(is_cut)) return tied;
  if (!words.empty()) {
    return first_of([&](const TableLookup& one) { return contains(words, one.rows); });
  }
  const auto largest = std::ranges::max_element(lookups, {}, &TableLookup::rows);
  return largest == lookups.end() ? nullptr : largest->table;
}

std::int64_t next_multiple(std::int64_t size, std::int64_t of) { return (size + of - 1) / of * of; }

Result<void> check_sizes(const ExecutionGraph& graph, const TensorSplit& split,
                         const FactsOfValues<bool>& vocabulary, std::int64_t ranks) {
  for (const Tensor& tensor : graph.tensors) {
    const std::int8_t cut = split.cut[tensor];
    if (cut < 0 || cut >= tensor.rank) continue;
    const std::int64_t size = graph.shape(tensor)[static_cast<std::size_t>(cut)];
    if (size % ranks == 0) continue;
    if (!vocabulary[tensor]) {
      return not_split(
          fmt::format("expected widths of layers that divide by {} ranks, found {}", ranks, size));
    }
    constexpr std::int64_t kMegatronMultiple = 128;  // --make-vocab-size-divisible-by
    return not_split(fmt::format(
        "expected a vocabulary that divides by {} ranks, found {} (Megatron-LM would fill it up to "
        "{})",
        ranks, size, next_multiple(size, kMegatronMultiple * ranks)));
  }
  return {};
}

}  // namespace

Result<TensorSplit> find_tensor_split(const StepView& step, std::int64_t ranks) {
  const ExecutionGraph& graph = step.graph();
  const ForwardOps forward = find_forward_ops(step);
  if (forward.experts >= 0) {
    return not_split(fmt::format("expected dense feed-forward layers, found experts ({}, node {})",
                                 graph.name(forward.experts), graph.node(forward.experts).id));
  }
  TensorSplit split{.ops = {}, .cut = FactsOfValues<std::int8_t>(step.tensors(), -1)};
  FactsOfValues<bool> vocabulary(step.tensors());
  std::vector<std::int64_t> words;  // sizes of output layers
  for (const WeightProduct& product : forward.products) {
    std::int8_t& cut = split.cut[*product.weight];
    if (cut >= 0 && cut != product.cut) {
      return not_split(
          "expected weights that are cut one way, found one that two products need "
          "cut differently");
    }
    cut = product.cut;
    if (product.bias && !product.by_rows) split.cut[*product.bias] = 0;
    split.ops.push_back(
        {.kind = product.by_rows ? SplitOp::Kind::kRows : SplitOp::Kind::kColumns,
         .node = product.node,
         .input = static_cast<std::uint32_t>(product.input - graph.tensors.data())});
    if (!product.is_head) continue;
    vocabulary[*product.weight] = true;
    if (product.bias) vocabulary[*product.bias] = true;
    for_each_tensor(graph, graph.outputs(product.node), [&](const Tensor& tensor) {
      if (tensor.rank > 0) words.push_back(graph.shape(tensor).back());
    });
  }
  if (std::ranges::none_of(forward.products, &WeightProduct::by_rows)) {
    return not_split(
        "expected a layer with two products in a row (attention, feed-forward), found "
        "none");
  }
  const Tensor* table = token_table(forward.lookups, split, words);
  if (table) {
    split.cut[*table] = std::max<std::int8_t>(split.cut[*table], 0);
    vocabulary[*table] = true;
  }
  for (const TableLookup& lookup : forward.lookups) {
    const bool is_cut = table && step.tensors().of(*lookup.table) == step.tensors().of(*table);
    split.ops.push_back({.kind = is_cut ? SplitOp::Kind::kLookup : SplitOp::Kind::kWholeLookup,
                         .node = lookup.node});
  }
  for (const std::int32_t loss : forward.losses) {
    split.ops.push_back({.kind = SplitOp::Kind::kLoss, .node = loss});
  }
  if (auto good = check_sizes(graph, split, vocabulary, ranks); !good) {
    return Unexpected{good.error()};
  }
  return split;
}

}  // namespace perfmodel
