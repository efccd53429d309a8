#include "tensor_parallel_split.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "ops/catalogue.hpp"
#include "step/backward_pass.hpp"

namespace perfmodel {

std::vector<PassOfNode> passes_of_nodes(const ExecutionGraph& graph) {
  std::vector<PassOfNode> passes(graph.nodes.size(), PassOfNode::kForward);
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    const std::string_view name = graph.name(node);
    const bool below = node.parent >= 0 && static_cast<std::size_t>(node.parent) < i;
    if (name.starts_with("Optimizer.")) {
      passes[i] = PassOfNode::kOptimizer;
    } else if (node.scope == Scope::kBackward || is_evaluate_function(graph, node)) {
      const bool again = node.scope == Scope::kBackward && name.starts_with("CheckpointFunction");
      passes[i] = again ? PassOfNode::kForward : PassOfNode::kBackward;
    } else if (below) {
      passes[i] = passes[node.parent];
    }
  }
  return passes;
}

namespace {

// What a tensor holds on one rank of several.
struct Holding {
  bool is_parameter = false;
  std::int64_t parameter = 0;      // its id
  bool turned = false;             // a transposed view of it
  std::set<std::size_t> products;  // of whose columns it has a part; none: it is whole

  bool is_part() const { return !products.empty(); }
};

// One pass over the forward ops with a set of weights that stay whole.
class SplitWalk {
 public:
  SplitWalk(const ExecutionGraph& graph, const std::vector<PassOfNode>& passes,
            const std::unordered_set<std::int64_t>& whole)
      : graph_(graph), passes_(passes), whole_(whole), skipped_(graph.nodes.size(), false) {}

  struct Product : SplitProduct {
    bool by_rows = false, used = false;
    std::size_t cut = 0;    // dimension of the parameter
    std::int64_t bias = 0;  // id; 0: none
  };
  struct Lookup {
    std::int32_t node = -1;
    std::int64_t table = 0, rows = 0;
  };

  void run() {
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      skipped_[i] =
          node.parent >= 0 && static_cast<std::size_t>(node.parent) < i && skipped_[node.parent];
      if (skipped_[i] || passes_[i] != PassOfNode::kForward || node.is_label) continue;
      visit(static_cast<std::int32_t>(i));
    }
  }

  const std::vector<Product>& products() const { return products_; }
  const std::vector<Lookup>& lookups() const { return lookups_; }
  const std::vector<std::int32_t>& losses() const { return losses_; }
  const std::set<std::size_t>& heads() const { return heads_; }
  const std::unordered_set<std::int64_t>& refused() const { return refused_; }
  std::int32_t experts() const { return experts_; }

 private:
  static bool is_leaf(const Node& node) { return node.children_count == 0; }

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
    const auto known = holdings_.find(tensor.id);
    if (known != holdings_.end()) return known->second;
    if (!is_floating_point(tensor.dtype)) return {};
    return {.is_parameter = true, .parameter = tensor.id};
  }

  void give(const Node& node, const Holding& made) {
    for_each_tensor(graph_, graph_.outputs(node), [&](const Tensor& tensor) {
      if (!is_undefined(tensor)) holdings_[tensor.id] = made;
    });
  }

  Holding joined(const Node& node) const {
    Holding made;
    for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
      const Holding one = holding(tensor);
      made.products.insert(one.products.begin(), one.products.end());
    });
    return made;
  }

  void refuse(const Holding& part) {
    for (std::size_t product : part.products) refused_.insert(products_[product].weight);
  }
  void use(const Holding& part) {
    for (std::size_t product : part.products) products_[product].used = true;
  }

  void visit(std::int32_t index) {
    const Node& node = graph_.nodes[index];
    const std::string_view name = graph_.name(node);
    const Op* op = find_op(name);
    if (!op) return give(node, joined(node));
    if (name == "aten::_grouped_mm" && experts_ < 0) experts_ = index;
    if (op->kind == OpKind::kView || op->kind == OpKind::kCast) {
      skipped_[index] = true;
      view(node, name);
    } else if (is_row_lookup(name)) {
      skipped_[index] = true;
      look_up(index);
    } else if (op->kind == OpKind::kProduct && !calls_product(node)) {
      skipped_[index] = true;
      multiply(index, *op);
    } else if (is_copy(name) && tensor(node, 1)) {
      give(node, holding(*tensor(node, 1)));
    } else {
      // What stands below an op that computes itself is its memory.
      skipped_[index] = op->kind != OpKind::kComposite && op->kind != OpKind::kWrapper &&
                        op->kind != OpKind::kLoss && op->kind != OpKind::kProduct;
      check(node, name, *op, index);
    }
  }

  void view(const Node& node, std::string_view name) {
    const Tensor* x = tensor(node, 0);
    if (!x) return;
    Holding made = holding(*x);
    const bool turns = name == "aten::t" || name == "aten::transpose" || name == "aten::numpy_T";
    if (made.is_parameter && turns && x->rank == 2) made.turned = !made.turned;
    give(node, made);
  }

  void look_up(std::int32_t index) {
    const Node& node = graph_.node(index);
    const Tensor* table = tensor(node, 0);
    give(node, {});
    if (!table || table->rank != 2) return;
    const Holding held = holding(*table);
    if (!held.is_parameter) return;
    lookups_.push_back({index, held.parameter, graph_.shape(*table)[0]});
  }

  // x [M, K] times a weight [K, N].
  void multiply(std::int32_t index, const Op& op) {
    const Node& node = graph_.node(index);
    const std::size_t first = op.has_addend ? 1 : 0;
    const Tensor *x = tensor(node, first), *weight = tensor(node, first + 1);
    const bool of_linear = graph_.name(node) == "aten::linear";  // weight [N, K]
    if (!x || !weight || weight->rank != 2) return give(node, joined(node));
    const Holding held = holding(*weight), data = holding(*x);
    if (!held.is_parameter || data.is_parameter) return give(node, joined(node));
    Product made;
    made.node = index;
    made.input = static_cast<std::uint32_t>(x - graph_.tensors.data());
    made.weight = held.parameter;
    made.by_rows = data.is_part();
    made.cut = (made.by_rows == (held.turned != of_linear)) ? 1 : 0;
    const Tensor* bias = op.has_addend ? tensor(node, 0) : of_linear ? tensor(node, 2) : nullptr;
    if (bias && bias->rank == 1) made.bias = bias->id;
    if (made.by_rows) {
      use(data);
      made.used = true;
      products_.push_back(made);
      return give(node, {});
    }
    if (whole_.contains(made.weight)) return give(node, {});
    products_.push_back(made);
    Holding part;
    part.products.insert(products_.size() - 1);
    give(node, part);
  }

  // Norms take whole rows, and what is added to a part of the columns must be a part, too.
  void check(const Node& node, std::string_view name, const Op& op, std::int32_t index) {
    Holding made = joined(node);
    const Tensor* x = tensor(node, 0);
    if (made.is_part() && x) {
      const Holding first = holding(*x);
      const bool over_columns = op.kind == OpKind::kNorm || name == "aten::mean" ||
                                name == "aten::var" || name == "aten::var_mean";
      // Norms of four dimensions are those of single heads.
      if (over_columns && x->rank < 4 && first.is_part()) {
        refuse(first);
        made = {};
      } else if (name == "aten::log_softmax" || name == "aten::_log_softmax") {
        if (first.is_part() && is_leaf(node)) losses_.push_back(index);
        use(first);
        heads_.insert(first.products.begin(), first.products.end());
        if (is_leaf(node)) made = {};
      } else if (op.kind == OpKind::kLoss && is_leaf(node) && first.is_part()) {
        refuse(first);
        made = {};
      } else if (op.kind == OpKind::kPointwise) {
        check_operands(node, made);
      }
    }
    give(node, made);
  }

  void check_operands(const Node& node, Holding& made) {
    std::int64_t largest = 0;
    for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
      if (holding(tensor).is_part()) largest = std::max(largest, tensor.numel);
    });
    bool meets_whole = false;
    for_each_tensor(graph_, graph_.inputs(node), [&](const Tensor& tensor) {
      const Holding one = holding(tensor);
      // Four dimensions are those of heads: biases of scores by position are cut with them.
      meets_whole |=
          !one.is_part() && !one.is_parameter && tensor.rank < 4 && tensor.numel == largest;
    });
    if (!meets_whole) return;
    refuse(made);
    made = {};
  }

  const ExecutionGraph& graph_;
  const std::vector<PassOfNode>& passes_;
  const std::unordered_set<std::int64_t>& whole_;
  std::vector<bool> skipped_;
  std::unordered_map<std::int64_t, Holding> holdings_;  // by tensor id
  std::vector<Product> products_;
  std::vector<Lookup> lookups_;
  std::vector<std::int32_t> losses_;
  std::set<std::size_t> heads_;  // products whose result is that of the output layer
  std::unordered_set<std::int64_t> refused_;
  std::int32_t experts_ = -1;
};

Unexpected not_split(std::string message) {
  return fail(ErrorCode::kImpossible, "tensor-parallel: " + std::move(message));
}

// Sizes of parameters by id, as their first mention has them.
std::unordered_map<std::int64_t, const Tensor*> tensors_by_id(
    const ExecutionGraph& graph, const std::unordered_map<std::int64_t, std::size_t>& wanted) {
  std::unordered_map<std::int64_t, const Tensor*> found;
  for (const Tensor& tensor : graph.tensors) {
    if (wanted.contains(tensor.id)) found.try_emplace(tensor.id, &tensor);
  }
  return found;
}

std::int64_t next_multiple(std::int64_t size, std::int64_t of) { return (size + of - 1) / of * of; }

Result<void> check_sizes(const ExecutionGraph& graph, const TensorSplit& split,
                         const std::unordered_set<std::int64_t>& vocabulary, std::int64_t ranks) {
  const auto tensors = tensors_by_id(graph, split.parameters);
  std::map<std::int64_t, std::size_t> in_order(split.parameters.begin(), split.parameters.end());
  for (const auto& [id, dim] : in_order) {
    const auto at = tensors.find(id);
    if (at == tensors.end() || dim >= at->second->rank) continue;
    const std::int64_t size = graph.shape(*at->second)[dim];
    if (size % ranks == 0) continue;
    if (!vocabulary.contains(id)) {
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

// The token embedding: the table that the output layer shares, else one with as many rows as there
// are words, else (no output layer) the largest.
std::optional<std::int64_t> token_table(const std::vector<SplitWalk::Lookup>& lookups,
                                        const TensorSplit& split,
                                        const std::set<std::int64_t>& words) {
  const auto first_of = [&](auto&& wanted) -> std::optional<std::int64_t> {
    const auto at = std::ranges::find_if(lookups, wanted);
    return at == lookups.end() ? std::nullopt : std::optional(at->table);
  };
  if (const auto tied =
          first_of([&](const auto& one) { return split.parameters.contains(one.table); })) {
    return tied;
  }
  if (!words.empty()) return first_of([&](const auto& one) { return words.contains(one.rows); });
  const auto largest = std::ranges::max_element(lookups, {}, &SplitWalk::Lookup::rows);
  return largest == lookups.end() ? std::nullopt : std::optional(largest->table);
}

}  // namespace

Result<TensorSplit> find_tensor_split(const ExecutionGraph& graph, std::int64_t ranks) {
  const std::vector<PassOfNode> passes = passes_of_nodes(graph);
  std::unordered_set<std::int64_t> whole;
  std::optional<SplitWalk> walk;
  while (true) {
    walk.emplace(graph, passes, whole);
    walk->run();
    const std::size_t before = whole.size();
    whole.insert(walk->refused().begin(), walk->refused().end());
    // A refusal changes what comes behind it; what leads nowhere is told apart afterwards.
    if (whole.size() == before) {
      for (const auto& product : walk->products()) {
        if (!product.used) whole.insert(product.weight);
      }
    }
    if (whole.size() == before) break;
  }
  if (walk->experts() >= 0) {
    return not_split(fmt::format("expected dense feed-forward layers, found experts ({}, node {})",
                                 graph.name(walk->experts()), graph.node(walk->experts()).id));
  }
  TensorSplit split;
  std::unordered_set<std::int64_t> vocabulary;
  std::set<std::int64_t> words;  // sizes of output layers
  const auto& products = walk->products();
  for (std::size_t i = 0; i < products.size(); ++i) {
    const auto& product = products[i];
    const auto [at, is_new] = split.parameters.try_emplace(product.weight, product.cut);
    if (!is_new && at->second != product.cut) {
      return not_split(
          "expected weights that are cut one way, found one that two products need "
          "cut differently");
    }
    if (product.bias != 0 && !product.by_rows) split.parameters[product.bias] = 0;
    (product.by_rows ? split.rows : split.columns).push_back(product);
    if (!walk->heads().contains(i)) continue;
    vocabulary.insert(product.weight);
    if (product.bias != 0) vocabulary.insert(product.bias);
    const Node& node = graph.node(product.node);
    for_each_tensor(graph, graph.outputs(node), [&](const Tensor& tensor) {
      if (tensor.rank > 0) words.insert(graph.shape(tensor)[tensor.rank - 1u]);
    });
  }
  if (split.rows.empty()) {
    return not_split(
        "expected a layer with two products behind each other (attention, feed-forward), found "
        "none");
  }
  const auto table = token_table(walk->lookups(), split, words);
  if (table) {
    split.parameters.try_emplace(*table, 0);
    vocabulary.insert(*table);
  }
  for (const auto& lookup : walk->lookups()) {
    (lookup.table == table ? split.embeddings : split.whole_embeddings).push_back(lookup.node);
  }
  split.losses = walk->losses();
  if (auto good = check_sizes(graph, split, vocabulary, ranks); !good) {
    return Unexpected{good.error()};
  }
  return split;
}

}  // namespace perfmodel
