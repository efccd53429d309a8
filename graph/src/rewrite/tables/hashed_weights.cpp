#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "builders/emit/graph_builder.hpp"
#include "ops/catalogue.hpp"
#include "perfmodel/graph/rewrites/memory.hpp"
#include "rewrite/graph_edit.hpp"
#include "rewrite/name_pattern.hpp"
#include "rewrite/optimizer/optimizer_writer.hpp"
#include "step/step_view.hpp"
#include "step/tensor_arguments.hpp"

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

bool is_sparse_gradient(std::string_view name) {
  return name == "aten::embedding_sparse_backward" ||
         name == "aten::_embedding_bag_sparse_backward";
}

bool swaps_axes(std::string_view name) {
  return name == "aten::t" || name == "aten::numpy_T" || name == "aten::mT" ||
         name == "aten::transpose";
}

/// How a node uses a weight that becomes an array.
struct HashedUse {
  enum class Role {
    kCopied,
    kView,
    kPassThrough,
    kLookup,
    kProduct,
    kWeightGradient,
    kTableGradient
  } role = Role::kCopied;
  std::int32_t weight = -1;  ///< into HashedWeights::plans
  bool is_turned = false;    ///< product: by the transpose of the weight

  bool is_other_op() const {
    return role != Role::kCopied && role != Role::kView && role != Role::kPassThrough;
  }
};
using HashedRole = HashedUse::Role;

struct HashedWeights {
  std::vector<HashedMatrixPlan> plans;
  std::vector<HashedUse> uses;       ///< by node
  std::vector<std::int32_t> arrays;  ///< by tensor: the weight whose array it is now, -1: none
};

/// Finds which weights become arrays and how each node uses them.
class HashedWeightFinder {
 public:
  HashedWeightFinder(const StepView& step, const HashedWeightOptions& options)
      : step_(step),
        graph_(step.graph()),
        options_(options),
        storages_(step.storages(), -1),
        marked_(step.storages()),
        turned_(step.tensors()),
        settled_(graph_.nodes.size()),
        forward_weights_(graph_.nodes.size(), -1),
        forward_ops_(graph_.nodes.size(), -1) {
    found_.uses.resize(graph_.nodes.size());
    found_.arrays.resize(graph_.tensors.size(), -1);
    for (const BackwardFunction& function : step.backward().functions) {
      if (function.function >= 0) forward_ops_[function.function] = function.forward;
    }
  }

  Result<void> find() {
    if (auto good = choose(); !good) return good;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (auto good = visit(i); !good) return good;
    }
    return {};
  }

  /// The optimizer's state gets the size of the arrays.
  Result<void> add_state(const ReadStep& step) {
    for (const ReadGroup& group : step.groups) {
      for (const ReadUpdate& update : group.updates) {
        if (update.parameter < 0) continue;
        std::int32_t weight = weight_of(graph_.tensors[update.parameter]);
        if (weight < 0 && update.weight >= 0) weight = weight_of(graph_.tensors[update.weight]);
        if (weight < 0) continue;
        if (update.sparse) {
          return refuse_hashing("expected dense gradients of the weights, found sparse ones");
        }
        for (const std::int64_t entry :
             {update.parameter, update.gradient, update.first, update.second}) {
          if (entry >= 0) mark(static_cast<std::uint32_t>(entry), weight);
        }
      }
    }
    return {};
  }

  const HashedWeights& found() const { return found_; }

 private:
  // Finds the weights of the layers that the pattern names: matrices that no op made.
  Result<void> choose() {
    const std::vector<bool> names = matching_names(graph_, options_.pattern);
    const std::vector<bool> inside = at_or_below(graph_, [&](std::size_t i) {
      return !graph_.nodes[i].is_structural && names[graph_.nodes[i].name];
    });
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph_.nodes.size()); ++i) {
      if (graph_.nodes[i].is_label || step_.backward().in_backward[i] || !inside[i]) continue;
      if (auto good = choose_at(i); !good) return good;
    }
    if (!found_.plans.empty()) return {};
    return no_match(graph_, options_.pattern, "a layer with a weight matrix on a GPU");
  }

  Result<void> choose_at(std::int32_t index) {
    const Node& op = graph_.node(index);
    const Op* row = find_op(graph_.name(op));
    if (row && graph_.name(op).starts_with("fbgemm::")) {
      return refuse_hashing(
          fmt::format("expected layers whose weights an optimizer updates, found {} (node {})",
                      graph_.name(op), op.id));
    }
    const bool table = is_lookup(row);
    if (!table && (!is_product(row) || options_.scheme == Scheme::kRobe)) return {};
    const Tensor* operand = input_at(graph_, index, table ? 0 : row->has_addend ? 2 : 1);
    if (!operand) return {};
    const Tensor& weight = shown_by(*operand);
    const Values& storages = step_.storages();
    const bool is_chosen = weight.rank == 2 && weight.on_gpu() && weight.numel > 0 &&
                           weight.storage_id != 0 && storages_[weight] < 0 &&
                           storages.maker(storages.of(weight)) < 0;
    if (!is_chosen) return {};
    const auto shape = graph_.shape(weight);
    PERFMODEL_TRY(plan, plan_of(shape[0], shape[1], table, options_));
    storages_[weight] = static_cast<std::int32_t>(found_.plans.size());
    found_.plans.push_back(*plan);
    return {};
  }

  // The tensor that this one views, or copies in another type.
  const Tensor& shown_by(const Tensor& tensor) const {
    const Values& values = step_.tensors();
    const Tensor* shown = &tensor;
    for (std::int32_t maker; (maker = values.maker(values.of(*shown))) >= 0;) {
      const Op* row = find_op(graph_.name(maker));
      const Tensor* from = input_at(graph_, maker, 0);
      const Tensor* to = output_at(graph_, maker);
      const bool follows = row && from && to && to->id == shown->id &&
                           (row->kind == OpKind::kView || is_conversion(row->name));
      if (!follows) break;
      shown = from;
    }
    return *shown;
  }

  // The weight whose copy, gradient or state a tensor is; -1: none.
  std::int32_t weight_of(const Tensor& tensor) const {
    const std::int32_t weight = storages_[tensor];
    return weight >= 0 && plan(weight).numel() == tensor.numel ? weight : -1;
  }
  const HashedMatrixPlan& plan(std::int32_t weight) const { return found_.plans[weight]; }

  void mark(std::uint32_t entry, std::int32_t weight) {
    found_.arrays[entry] = weight;
    storages_[graph_.tensors[entry]] = weight;
    marked_[graph_.tensors[entry]] = true;
  }

  void mark_arguments(std::span<const Argument> arguments) {
    for (const Argument& argument : arguments) {
      if (argument.kind == Argument::Kind::kList) mark_arguments(graph_.elements(argument));
      if (argument.kind != Argument::Kind::kTensor) continue;
      const std::int32_t weight = weight_of(graph_.tensors[argument.index]);
      if (weight >= 0) found_.arrays[argument.index] = weight;
    }
  }

  void mark_output(std::int32_t index, std::int32_t weight) {
    for (const Argument& argument : graph_.outputs(index)) {
      if (argument.kind != Argument::Kind::kTensor) continue;
      if (graph_.tensors[argument.index].numel == plan(weight).numel())
        mark(argument.index, weight);
      return;
    }
  }

  // Mentions above a node: tensors that a function or an op around it hands on.
  void mark_above(std::int32_t index) {
    for (std::int32_t up = graph_.node(index).parent; up >= 0 && !graph_.node(up).is_label;
         up = graph_.node(up).parent) {
      mark_arguments(graph_.outputs(up));
    }
  }

  Result<void> visit(std::int32_t index) {
    const Node& op = graph_.node(index);
    settled_[index] = op.parent >= 0 && settled_[op.parent];
    if (settled_[index]) return {};
    std::int32_t read = -1;
    for_each_tensor(graph_, graph_.inputs(op), [&](const Tensor& tensor) {
      if (read < 0) read = weight_of(tensor);
    });
    mark_arguments(graph_.inputs(op));
    HashedUse& use = found_.uses[index];
    if (const auto gradient = gradient_of(index)) {
      use = *gradient;
      settled_[index] = true;
      mark_output(index, gradient->weight);
      mark_above(index);
      return {};
    }
    if (op.is_label) return {};
    if (is_sparse_gradient(graph_.name(op)) && weight_of_function(index) >= 0) {
      return refuse_hashing(fmt::format("expected dense gradients of tables, found {} (node {})",
                                        graph_.name(op), op.id));
    }
    if (read >= 0) {
      PERFMODEL_TRY(found, use_of(index, read));
      use = *found;
      settled_[index] = use.is_other_op() || use.role == HashedRole::kView;
    }
    mark_arguments(graph_.outputs(op));
    return {};
  }

  // The weight of the forward op whose backward function a node belongs to; -1: none.
  std::int32_t weight_of_function(std::int32_t index) const {
    const auto is_function = [&](std::int32_t up) { return forward_ops_[up] >= 0; };
    const std::int32_t function = graph_.find_around(graph_.node(index).parent, is_function);
    return function < 0 ? -1 : forward_weights_[forward_ops_[function]];
  }

  bool has_below(const Node& op, bool (*is_alike)(const Op*)) const {
    return std::ranges::any_of(graph_.children(op), [&](std::int32_t child) {
      return is_alike(find_op(graph_.name(child)));
    });
  }

  // Products and lookups whose result is the gradient of a weight.
  std::optional<HashedUse> gradient_of(std::int32_t index) const {
    if (!step_.backward().in_backward[index]) return std::nullopt;
    const Node& op = graph_.node(index);
    const Op* row = find_op(graph_.name(op));
    const Tensor* made = output_at(graph_, index);
    if (!row || !made) return std::nullopt;
    const bool table = is_table_gradient(row->name);
    if (!table && (!is_product(row) || row->has_addend || has_below(op, is_product))) {
      return std::nullopt;
    }
    const std::int32_t weight = weight_of_function(index);
    if (weight < 0 || made->numel != plan(weight).numel()) return std::nullopt;
    if (table) return HashedUse{.role = HashedRole::kTableGradient, .weight = weight};
    for (const std::size_t at : {0U, 1U}) {
      const Tensor* operand = input_at(graph_, index, at);
      if (!operand || weight_of(*operand) >= 0) return std::nullopt;  // the gradient of the input
    }
    return HashedUse{.role = HashedRole::kWeightGradient, .weight = weight};
  }

  // `weight`: what the node reads, as its array, copy or gradient.
  Result<HashedUse> use_of(std::int32_t index, std::int32_t weight) {
    const Node& op = graph_.node(index);
    const std::string_view name = graph_.name(op);
    const Op* row = find_op(name);
    if (!row || is_under_optimizer(graph_, index)) return HashedUse{};
    if (is_lookup(row)) {
      if (has_below(op, is_lookup)) return HashedUse{};
      forward_weights_[index] = weight;
      return HashedUse{.role = HashedRole::kLookup, .weight = weight};
    }
    if (is_product(row)) {
      if (has_below(op, is_product)) {
        return HashedUse{.role = HashedRole::kPassThrough, .weight = weight};
      }
      const Tensor* operand = input_at(graph_, index, row->has_addend ? 2 : 1);
      if (operand && operand->rank == 2 && weight_of(*operand) == weight &&
          row->name != "aten::bmm") {
        forward_weights_[index] = weight;
        return HashedUse{
            .role = HashedRole::kProduct, .weight = weight, .is_turned = turned_[*operand]};
      }
    }
    const Tensor* first = input_at(graph_, index, 0);
    const Tensor* made = output_at(graph_, index);
    if (first && weight_of(*first) >= 0) {
      if (row->kind == OpKind::kView) {
        if (made && made->id != first->id) turned_[*made] = turned_[*first] != swaps_axes(name);
        return HashedUse{.role = HashedRole::kView, .weight = weight};
      }
      if (is_conversion(name) || is_copy(name) || is_sum(name)) {
        mark_output(index, weight);
        if (made) turned_[*made] = turned_[*first];
        return HashedUse{};
      }
    }
    constexpr OpKind kWithoutKernel[] = {OpKind::kComposite, OpKind::kWrapper, OpKind::kAllocation,
                                         OpKind::kQuery, OpKind::kForeach};
    const bool launches = std::ranges::find(kWithoutKernel, row->kind) == std::end(kWithoutKernel);
    const bool is_marked = first && marked_[*first];
    if (!launches || is_marked || op.children_count > 0) return HashedUse{};
    return refuse_hashing(
        fmt::format("expected the weight [{}, {}] in products and lookups alone, found {} (node "
                    "{})",
                    plan(weight).rows, plan(weight).columns, name, op.id));
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  const HashedWeightOptions& options_;
  HashedWeights found_;
  FactsOfValues<std::int32_t> storages_;  // storages of weights, their copies, gradients and state
                                          // -> weight
  FactsOfValues<bool> marked_;            // storages of copies, gradients and state alone
  FactsOfValues<bool> turned_;
  std::vector<bool> settled_;                  // by node: nothing is asked about what is below it
  std::vector<std::int32_t> forward_weights_;  // by node: of products and lookups
  std::vector<std::int32_t> forward_ops_;      // by node of a backward function
};

class HashedWeightWriter {
 public:
  HashedWeightWriter(const ExecutionGraph& graph, const HashedWeights& weights,
                     const std::map<std::int32_t, ReadStep>& steps)
      : source_(graph), weights_(weights), edit_(graph) {
    make_arrays();
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(source_.nodes.size()); ++i) {
      const HashedUse& use = weights.uses[i];
      if (use.role == HashedRole::kPassThrough) edit_.unwrap(i);
      if (use.role == HashedRole::kView) edit_.refill(i, {});
      if (!use.is_other_op()) continue;
      edit_.replace(i, [this, i] {
        edit_.copy().close_beside(i);
        write_op(i);
      });
    }
    for (const auto& [label, step] : steps) {
      edit_.refill(label, [this, &step = step] { write_optimizer_step(edit_.copy(), step); });
    }
  }

  ExecutionGraph write() { return edit_.write(); }

 private:
  void make_arrays() {
    ExecutionGraph& made = edit_.made();
    for (std::size_t i = 0; i < weights_.arrays.size(); ++i) {
      if (weights_.arrays[i] < 0) continue;
      Tensor& tensor = made.tensors[i];
      tensor.numel = weights_.plans[weights_.arrays[i]].elements;
      tensor.rank = 1;
      tensor.shape_begin = static_cast<std::uint32_t>(made.shape_pool.size());
      made.shape_pool.push_back(tensor.numel);
    }
  }

  // Arguments among the first `count` that are no tensor give an empty value.
  std::vector<Value> tensors(std::span<const Argument> arguments, std::size_t count) {
    std::vector<Value> found;
    for (const Argument& argument : arguments.first(std::min(count, arguments.size()))) {
      const bool is_tensor = argument.kind == Argument::Kind::kTensor;
      found.push_back(is_tensor ? Value(edit_.copy().tensor(argument)) : Value(kNone));
    }
    return found;
  }

  void write_op(std::int32_t index) {
    const HashedUse& use = weights_.uses[index];
    const HashedMatrixPlan& plan = weights_.plans[use.weight];
    const std::string_view name = source_.name(index);
    const auto write = [&](std::string_view by, std::size_t operands,
                           std::initializer_list<Value> settings) {
      std::vector<Value> inputs = tensors(source_.inputs(index), operands);
      inputs.insert(inputs.end(), settings);
      const auto outputs = source_.outputs(index);
      edit_.builder().leaf_op(by, std::move(inputs), tensors(outputs, outputs.size()),
                              source_.node(index).seq_id);
    };
    if (use.role == HashedRole::kProduct) {
      const bool is_biased = find_op(name)->has_addend;
      write(is_biased ? "hashed::addmm" : "hashed::mm", is_biased ? 3 : 2,
            {plan.rows, plan.columns, use.is_turned, plan.tile_rows, plan.tile_columns});
    } else if (use.role == HashedRole::kWeightGradient) {
      write("hashed::weight_gradient", 2,
            {plan.elements, plan.rows, plan.columns, plan.tile_rows, plan.tile_columns});
    } else if (use.role == HashedRole::kLookup) {
      const bool is_bag = name != "aten::embedding";
      write(is_bag ? "hashed::embedding_bag" : "hashed::embedding", is_bag ? 3 : 2,
            {plan.rows, plan.columns, plan.tile_columns});
    } else {
      write("hashed::embedding_gradient", 2, {plan.elements, plan.columns, plan.tile_columns});
    }
  }

  const ExecutionGraph& source_;
  const HashedWeights& weights_;
  GraphEdit edit_;
};

}  // namespace

Result<ExecutionGraph> rewrite_hashed_weights(const ExecutionGraph& source,
                                              const HashedWeightOptions& options) {
  if (!(options.compression >= 1) || !std::isfinite(options.compression)) {
    return refuse_hashing(
        fmt::format("expected a compression of at least 1, found {}", options.compression));
  }
  const StepView step(source);
  if (auto good = step.check("hash-weights", {.no_collectives = true, .eager = true}); !good) {
    return Unexpected{good.error()};
  }
  HashedWeightFinder finder(step, options);
  if (auto found = finder.find(); !found) return Unexpected{found.error()};
  const auto& steps = step.optimizers();
  if (!steps) return Unexpected{steps.error()};
  for (const auto& [label, read] : *steps) {
    if (auto good = finder.add_state(read); !good) return Unexpected{good.error()};
  }
  return HashedWeightWriter(step.graph(), finder.found(), *steps).write();
}

}  // namespace perfmodel
