#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "builders/emit/graph_builder.hpp"
#include "ops/catalogue.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "rewrite/graph_edit.hpp"
#include "rewrite/name_pattern.hpp"
#include "rewrite/optimizer/optimizer_writer.hpp"
#include "step/backward_pass.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

using Scheme = HashedWeightOptions::Scheme;

constexpr std::int64_t kTileRows = 64, kTileColumns = 32, kLeastRun = 8, kRobeRun = 32;

Unexpected refuse_hashing(std::string message) {
  return fail(ErrorCode::kImpossible, "hash-weights: " + std::move(message));
}

/// A matrix [rows, columns] that is an array from now on.
struct HashedMatrixPlan {
  std::int64_t rows = 0, columns = 0, elements = 0;
  std::int64_t tile_rows = 1, tile_columns = 1;
  bool is_table = false;
  std::int64_t numel() const { return rows * columns; }
};

std::int64_t array_elements(std::int64_t numel, double compression) {
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::ceil(static_cast<double>(numel) / compression)));
}

/// Runs that the array holds more than one of: tiles and chunks are halved until they fit.
Result<HashedMatrixPlan> plan_of(std::int64_t rows, std::int64_t columns, bool is_table,
                                 const HashedWeightOptions& options) {
  HashedMatrixPlan plan{.rows = rows, .columns = columns, .is_table = is_table};
  plan.elements = array_elements(rows * columns, options.compression);
  if (options.scheme == Scheme::kHashedNet) return plan;
  plan.tile_rows = is_table ? 1 : std::min(kTileRows, rows);
  plan.tile_columns = std::min(is_table ? kRobeRun : kTileColumns, columns);
  while (plan.tile_rows * plan.tile_columns >= plan.elements &&
         plan.tile_rows * plan.tile_columns > 1) {
    std::int64_t& longer = plan.tile_rows >= plan.tile_columns ? plan.tile_rows : plan.tile_columns;
    longer = (longer + 1) / 2;
  }
  if (plan.tile_rows * plan.tile_columns < std::min(kLeastRun, rows * columns)) {
    return refuse_hashing(fmt::format(
        "expected arrays of more than {} elements, found {} for a weight [{}, {}] at compression "
        "{}: take a smaller one, or a pattern without this layer",
        kLeastRun, plan.elements, rows, columns, options.compression));
  }
  return plan;
}

bool is_product(const Op* op) {
  return op && op->kind == OpKind::kProduct && is_matrix_product(op->name);
}

bool is_lookup(const Op* op) {
  return op && op->kind == OpKind::kEmbedding &&
         (op->name == "aten::embedding" || op->name == "aten::embedding_bag" ||
          op->name == "aten::_embedding_bag" || op->name == "aten::_embedding_bag_forward_only");
}

bool is_table_gradient(std::string_view name) {
  return name == "aten::embedding_dense_backward" || name == "aten::_embedding_bag_dense_backward";
}

bool swaps_axes(std::string_view name) {
  return name == "aten::t" || name == "aten::numpy_T" || name == "aten::mT" ||
         name == "aten::transpose";
}

const Tensor* input(const ExecutionGraph& graph, const Node& op, std::size_t at) {
  const auto inputs = graph.inputs(op);
  if (at >= inputs.size() || inputs[at].kind != Argument::Kind::kTensor) return nullptr;
  return &graph.tensors[inputs[at].index];
}
const Tensor* output(const ExecutionGraph& graph, const Node& op) {
  const auto outputs = graph.outputs(op);
  if (outputs.empty() || outputs[0].kind != Argument::Kind::kTensor) return nullptr;
  return &graph.tensors[outputs[0].index];
}

using HashedWeights = std::map<std::int64_t, HashedMatrixPlan>;  // by storage

/// Which weights become arrays.
class HashedWeightChooser {
 public:
  HashedWeightChooser(const ExecutionGraph& graph, const HashedWeightOptions& options,
                      const std::vector<bool>& in_backward)
      : graph_(graph), options_(options), in_backward_(in_backward) {}

  // The weights of the layers that the pattern means: matrices that nobody made.
  Result<HashedWeights> choose() {
    const std::vector<bool> names = matching_names(graph_, options_.pattern);
    const std::vector<bool> inside = at_or_below(graph_, [&](std::size_t i) {
      return !graph_.nodes[i].is_structural && names[graph_.nodes[i].name];
    });
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& op = graph_.nodes[i];
      if (op.is_label) continue;
      if (!in_backward_[i] && inside[i]) {
        if (auto good = choose_at(op); !good) return Unexpected{good.error()};
      }
      follow_origins(op);
    }
    if (weights_.empty()) {
      return no_match(graph_, options_.pattern, "a layer with a weight matrix on a GPU");
    }
    return std::move(weights_);
  }

 private:
  Result<void> choose_at(const Node& op) {
    const Op* row = find_op(graph_.name(op));
    if (row && graph_.name(op).starts_with("fbgemm::")) {
      return refuse_hashing(
          fmt::format("expected layers whose weights an optimizer updates, found {} (node {})",
                      graph_.name(op), op.id));
    }
    const bool table = is_lookup(row);
    if (!table && !is_product(row)) return {};
    const Tensor* operand = input(graph_, op, table ? 0 : row->has_addend ? 2 : 1);
    if (!operand) return {};
    const auto at = origins_.find(operand->id);
    const Tensor& weight = at == origins_.end() ? *operand : *at->second;
    if (made_.contains(weight.storage_id) || weight.rank != 2 || !weight.on_gpu()) return {};
    if (weight.numel == 0) return {};
    if (weight.storage_id == 0 || weights_.contains(weight.storage_id)) return {};
    if (options_.scheme == Scheme::kRobe && !table) return {};
    const auto shape = graph_.shape(weight);
    auto plan = plan_of(shape[0], shape[1], table, options_);
    if (!plan) return Unexpected{plan.error()};
    weights_[weight.storage_id] = *plan;
    return {};
  }

  void follow_origins(const Node& op) {
    const Op* row = find_op(graph_.name(op));
    const Tensor* from = input(graph_, op, 0);
    const Tensor* to = output(graph_, op);
    const bool follows =
        row && from && to && (row->kind == OpKind::kView || is_conversion(row->name));
    if (follows && !made_.contains(from->storage_id)) {
      if (from->id != to->id) {
        const auto at = origins_.find(from->id);
        origins_[to->id] = at == origins_.end() ? from : at->second;
      }
      return;
    }
    for_each_tensor(graph_, graph_.outputs(op), [&](const Tensor& tensor) {
      bool taken = false;
      for_each_tensor(graph_, graph_.inputs(op),
                      [&](const Tensor& in) { taken |= in.storage_id == tensor.storage_id; });
      // Casts of parameters are copies of them, whatever writes them.
      if (!taken && !origins_.contains(tensor.id)) made_.insert(tensor.storage_id);
    });
  }

  const ExecutionGraph& graph_;
  const HashedWeightOptions& options_;
  const std::vector<bool>& in_backward_;
  HashedWeights weights_;
  std::unordered_map<std::int64_t, const Tensor*> origins_;  // views by id -> what they show
  std::unordered_set<std::int64_t> made_;                    // storages
};

/// Finds how each node uses the weights that become arrays.
class HashedWeightFinder {
 public:
  enum class Role {
    kCopied,
    kView,
    kPassThrough,
    kLookup,
    kProduct,
    kWeightGradient,
    kTableGradient
  };
  struct Use {
    Role role = Role::kCopied;
    std::int64_t weight = 0;  // key of weights()
    bool turned = false;      // product: by the transpose of the weight
  };

  HashedWeightFinder(const ExecutionGraph& graph, const HashedWeightOptions& options)
      : graph_(graph), options_(options), pass_(backward_pass(graph)) {}

  Result<void> find() {
    uses_.resize(graph_.nodes.size());
    auto chosen = HashedWeightChooser(graph_, options_, pass_.in_backward).choose();
    if (!chosen) return Unexpected{chosen.error()};
    weights_ = std::move(*chosen);
    for (std::size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (auto good = visit(static_cast<std::int32_t>(i)); !good) return good;
    }
    return {};
  }

  const Use& use(std::int32_t node) const { return uses_[node]; }
  const HashedMatrixPlan& plan(std::int64_t weight) const { return weights_.at(weight); }
  /// Tensors, by index in the graph, that are arrays now, with the weight that they belong to.
  const std::map<std::uint32_t, std::int64_t>& arrays() const { return arrays_; }

  /// Storages of the arrays by what the optimizer keeps of them.
  Result<void> add_state(const ReadStep& step) {
    for (const ReadGroup& group : step.groups) {
      for (const ReadUpdate& update : group.updates) {
        if (update.parameter < 0) continue;
        const auto at = weight_of(graph_.tensors[update.parameter]);
        const auto model = update.weight < 0 ? std::optional<std::int64_t>()
                                             : weight_of(graph_.tensors[update.weight]);
        if (!at && !model) continue;
        if (update.sparse) {
          return refuse_hashing("expected dense gradients of the weights, found sparse ones");
        }
        const std::int64_t weight = at ? *at : *model;
        for (const std::int64_t entry :
             {update.parameter, update.gradient, update.first, update.second}) {
          if (entry >= 0) mark(static_cast<std::uint32_t>(entry), weight);
        }
      }
    }
    return {};
  }

 private:
  std::optional<std::int64_t> weight_of(const Tensor& tensor) const {
    const auto at = storages_.find(tensor.storage_id);
    const std::int64_t weight = at != storages_.end() ? at->second : tensor.storage_id;
    const auto plan = weights_.find(weight);
    if (plan == weights_.end() || plan->second.numel() != tensor.numel) return std::nullopt;
    return weight;
  }

  void mark(std::uint32_t entry, std::int64_t weight) {
    arrays_[entry] = weight;
    storages_[graph_.tensors[entry].storage_id] = weight;
  }

  void mark_arguments(std::span<const Argument> arguments) {
    for (const Argument& argument : arguments) {
      if (argument.kind == Argument::Kind::kList) {
        mark_arguments(graph_.elements(argument));
      } else if (argument.kind == Argument::Kind::kTensor) {
        if (const auto weight = weight_of(graph_.tensors[argument.index])) {
          arrays_[argument.index] = *weight;
        }
      }
    }
  }

  void mark_output(std::int32_t index, std::int64_t weight) {
    for (const Argument& argument : graph_.outputs(index)) {
      if (argument.kind != Argument::Kind::kTensor) continue;
      if (graph_.tensors[argument.index].numel == weights_.at(weight).numel()) {
        mark(argument.index, weight);
      }
      return;
    }
  }

  // Mentions above a node: what a function or an op around it hands on.
  void mark_above(std::int32_t index) {
    for (std::int32_t up = graph_.node(index).parent; up >= 0 && !graph_.node(up).is_label;
         up = graph_.node(up).parent) {
      mark_arguments(graph_.outputs(up));
    }
  }

  Result<void> visit(std::int32_t index) {
    const Node& op = graph_.node(index);
    if (op.parent >= 0 && skips(op.parent)) {
      skipped_.insert(index);
      return {};
    }
    std::optional<std::int64_t> read;
    for_each_tensor(graph_, graph_.inputs(op), [&](const Tensor& tensor) {
      if (!read) read = weight_of(tensor);
    });
    mark_arguments(graph_.inputs(op));
    if (const auto gradient = gradient_of(index)) {
      uses_[index] = *gradient;
      mark_output(index, gradient->weight);
      mark_above(index);
      return {};
    }
    if (op.is_label) return {};
    if (is_sparse_gradient_of_hashed(index)) {
      return refuse_hashing(fmt::format("expected dense gradients of tables, found {} (node {})",
                                        graph_.name(op), op.id));
    }
    if (read) {
      auto use = use_of(index, *read);
      if (!use) return Unexpected{use.error()};
      uses_[index] = *use;
    }
    mark_arguments(graph_.outputs(op));
    return {};
  }

  bool skips(std::int32_t index) const {
    if (skipped_.contains(index)) return true;
    const Role role = use(index).role;
    return role != Role::kCopied && role != Role::kPassThrough;
  }

  // The weight of the forward op whose backward function a node belongs to; 0: none.
  std::int64_t weight_of_function(std::int32_t index) {
    if (functions_.empty()) {
      for (const BackwardFunction& function : pass_.functions) {
        functions_[function.function] = function.forward;
      }
      functions_[-1] = -1;
    }
    const std::int32_t function = graph_.find_around(
        graph_.node(index).parent, [&](std::int32_t up) { return functions_.contains(up); });
    if (function < 0 || functions_.at(function) < 0) return 0;
    const auto weight = forward_.find(functions_.at(function));
    return weight == forward_.end() ? 0 : weight->second;
  }

  bool has_product_below(const Node& op) const {
    return std::ranges::any_of(graph_.children(op), [&](std::int32_t child) {
      return is_product(find_op(graph_.name(child)));
    });
  }

  bool is_sparse_gradient_of_hashed(std::int32_t index) {
    const std::string_view name = graph_.name(index);
    return (name == "aten::_embedding_bag_sparse_backward" ||
            name == "aten::embedding_sparse_backward") &&
           weight_of_function(index) != 0;
  }

  // Products and lookups whose result is the gradient of a weight.
  std::optional<Use> gradient_of(std::int32_t index) {
    if (!pass_.in_backward[index]) return std::nullopt;
    const Node& op = graph_.node(index);
    const Op* row = find_op(graph_.name(op));
    const Tensor* made = output(graph_, op);
    if (!row || !made) return std::nullopt;
    const bool table = is_table_gradient(row->name);
    if (!table && (!is_product(row) || row->has_addend || has_product_below(op)))
      return std::nullopt;
    const std::int64_t weight = weight_of_function(index);
    if (weight == 0 || made->numel != weights_.at(weight).numel()) return std::nullopt;
    if (table) return Use{.role = Role::kTableGradient, .weight = weight};
    for (const std::size_t at : {0U, 1U}) {
      const Tensor* operand = input(graph_, op, at);
      if (!operand || weight_of(*operand)) return std::nullopt;  // the gradient of the input
    }
    return Use{.role = Role::kWeightGradient, .weight = weight};
  }

  bool is_under_optimizer(std::int32_t index) const {
    const auto holds = [&](std::int32_t i) { return graph_.name(i).starts_with("Optimizer."); };
    return graph_.find_around(index, holds) >= 0;
  }

  // `weight`: what the node reads, as its array, copy or gradient.
  Result<Use> use_of(std::int32_t index, std::int64_t weight) {
    const Node& op = graph_.node(index);
    const std::string_view name = graph_.name(op);
    const Op* row = find_op(name);
    if (is_under_optimizer(index)) return Use{};
    const Tensor* first = input(graph_, op, 0);
    if (is_lookup(row)) {
      if (std::ranges::any_of(graph_.children(op), [&](std::int32_t child) {
            return is_lookup(find_op(graph_.name(child)));
          })) {
        return Use{};
      }
      forward_[index] = weight;
      return Use{.role = Role::kLookup, .weight = weight};
    }
    if (is_product(row)) {
      if (has_product_below(op)) return Use{.role = Role::kPassThrough, .weight = weight};
      const Tensor* operand = input(graph_, op, row->has_addend ? 2 : 1);
      if (operand && operand->rank == 2 && weight_of(*operand) == weight &&
          row->name != "aten::bmm") {
        forward_[index] = weight;
        return Use{.role = Role::kProduct, .weight = weight, .turned = turned_[operand->id]};
      }
    }
    if (row && row->kind == OpKind::kView && first && weight_of(*first)) {
      if (const Tensor* made = output(graph_, op); made && made->id != first->id) {
        turned_[made->id] = turned_[first->id] != swaps_axes(name);
      }
      return Use{.role = Role::kView, .weight = weight};
    }
    const bool hands_on =
        row && first && weight_of(*first) && (is_conversion(name) || is_copy(name) || is_sum(name));
    if (hands_on) {
      mark_output(index, weight);
      if (const Tensor* made = output(graph_, op)) turned_[made->id] = turned_[first->id];
      return Use{};
    }
    const bool launches = row && row->kind != OpKind::kComposite && row->kind != OpKind::kWrapper &&
                          row->kind != OpKind::kAllocation && row->kind != OpKind::kQuery &&
                          row->kind != OpKind::kForeach;
    const bool of_gradient = first && storages_.contains(first->storage_id);
    if (launches && !of_gradient && op.children_count == 0) {
      return refuse_hashing(
          fmt::format("expected the weight [{}, {}] in products and lookups alone, found {} (node "
                      "{})",
                      weights_.at(weight).rows, weights_.at(weight).columns, name, op.id));
    }
    return Use{};
  }

  const ExecutionGraph& graph_;
  const HashedWeightOptions& options_;
  const BackwardPass pass_;
  std::vector<Use> uses_;
  HashedWeights weights_;
  std::unordered_map<std::int64_t, std::int64_t> storages_;   // copies, gradients, state -> weight
  std::map<std::uint32_t, std::int64_t> arrays_;              // tensors -> weight
  std::unordered_map<std::int32_t, std::int64_t> forward_;    // products and lookups -> weight
  std::unordered_map<std::int32_t, std::int32_t> functions_;  // function's node -> forward op
  std::unordered_map<std::int64_t, bool> turned_;             // by tensor id
  std::unordered_set<std::int32_t> skipped_;
};

class HashedWeightWriter {
 public:
  HashedWeightWriter(const ExecutionGraph& graph, const HashedWeightFinder& finder,
                     const std::map<std::int32_t, ReadStep>& steps)
      : source_(graph), finder_(finder), edit_(graph) {
    using Role = HashedWeightFinder::Role;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
      const Role role = finder.use(i).role;
      if (role == Role::kPassThrough) edit_.unwrap(i);
      if (role == Role::kView) edit_.refill(i, {});
      if (role != Role::kCopied && role != Role::kView && role != Role::kPassThrough) {
        edit_.replace(i, [this, i] {
          edit_.copy().close_beside(i);
          write_op(i);
        });
      }
    }
    for (const auto& [label, step] : steps) {
      edit_.refill(label, [this, &step] { write_optimizer_step(edit_.copy(), step, {}); });
    }
  }

  ExecutionGraph write() { return edit_.write(); }

 private:
  Value given(std::span<const Argument> arguments, std::size_t at) {
    if (at < arguments.size() && arguments[at].kind == Argument::Kind::kTensor) {
      return edit_.copy().tensor(arguments[at]);
    }
    return kNone;
  }

  void write_op(std::int32_t index) {
    using Role = HashedWeightFinder::Role;
    const Node& op = source_.node(index);
    const HashedWeightFinder::Use& use = finder_.use(index);
    const HashedMatrixPlan& plan = finder_.plan(use.weight);
    const auto in = source_.inputs(op), out = source_.outputs(op);
    const std::string_view name = source_.name(op);
    std::vector<Value> outputs;
    for (std::size_t i = 0; i < out.size(); ++i) outputs.push_back(given(out, i));
    GraphBuilder& builder = edit_.builder();
    const std::int64_t sequence = op.seq_id;
    switch (use.role) {
      case Role::kProduct: {
        const bool biased = find_op(name)->has_addend;
        std::vector<Value> inputs;
        for (std::size_t i = 0; i < (biased ? 3U : 2U); ++i) inputs.push_back(given(in, i));
        inputs.insert(inputs.end(),
                      {plan.rows, plan.columns, use.turned, plan.tile_rows, plan.tile_columns});
        builder.leaf_op(biased ? "hashed::addmm" : "hashed::mm", inputs, outputs, sequence);
        return;
      }
      case Role::kWeightGradient:
        builder.leaf_op("hashed::weight_gradient",
                        {given(in, 0), given(in, 1), plan.elements, plan.rows, plan.columns,
                         plan.tile_rows, plan.tile_columns},
                        outputs, sequence);
        return;
      case Role::kLookup: {
        const bool bag = name != "aten::embedding";
        std::vector<Value> inputs = {given(in, 0), given(in, 1)};
        if (bag) inputs.push_back(given(in, 2));
        inputs.insert(inputs.end(), {plan.rows, plan.columns, plan.tile_columns});
        builder.leaf_op(bag ? "hashed::embedding_bag" : "hashed::embedding", inputs, outputs,
                        sequence);
        return;
      }
      case Role::kTableGradient:
        builder.leaf_op(
            "hashed::embedding_gradient",
            {given(in, 0), given(in, 1), plan.elements, plan.columns, plan.tile_columns}, outputs,
            sequence);
        return;
      default:
        return;
    }
  }

  const ExecutionGraph& source_;
  const HashedWeightFinder& finder_;
  GraphEdit edit_;
};

/// The graph with the tensors of hashed weights as arrays.
ExecutionGraph with_arrays(const ExecutionGraph& graph, const HashedWeightFinder& finder) {
  ExecutionGraph made = graph;
  for (const auto& [entry, weight] : finder.arrays()) {
    Tensor& tensor = made.tensors[entry];
    tensor.numel = finder.plan(weight).elements;
    tensor.rank = 1;
    tensor.shape_begin = static_cast<std::uint32_t>(made.shape_pool.size());
    made.shape_pool.push_back(tensor.numel);
  }
  return made;
}

}  // namespace

Result<ExecutionGraph> rewrite_hashed_weights(const ExecutionGraph& source,
                                              const HashedWeightOptions& options) {
  if (!(options.compression >= 1) || !std::isfinite(options.compression)) {
    return refuse_hashing(
        fmt::format("expected a compression of at least 1, found {}", options.compression));
  }
  const StepView step(source);
  if (auto good = step.check("hash-weights", {.no_collectives = true}); !good) {
    return Unexpected{good.error()};
  }
  const ExecutionGraph& graph = step.graph();
  HashedWeightFinder finder(graph, options);
  if (auto found = finder.find(); !found) return Unexpected{found.error()};
  const auto steps = step.optimizers();
  if (!steps) return Unexpected{steps.error()};
  for (const auto& [label, read] : *steps) {
    if (auto good = finder.add_state(read); !good) return Unexpected{good.error()};
  }
  const ExecutionGraph arrays = with_arrays(graph, finder);
  return HashedWeightWriter(arrays, finder, *steps).write();
}

}  // namespace perfmodel
