#include "tables_in_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "base/contains.hpp"
#include "lower/ops/embedding_nodes.hpp"
#include "ops/catalogue.hpp"
#include "step/step_view.hpp"

namespace perfmodel::sharding {
namespace {

/// The i-th of `count` parts of a sum in steps of `unit`, as equal as may be.
std::int64_t share_of(std::int64_t sum, std::int64_t count, std::int64_t i, std::int64_t unit) {
  const std::int64_t units = sum / unit;
  return (units / count + (i < units % count ? 1 : 0)) * unit;
}

struct KnownOptimizer {
  std::string_view name;
  TableOptimizer optimizer;
  std::string_view differs;  ///< how it does, for a warning
};

// By the name in FBGEMM's op; those without a match of their own by the size of their state.
constexpr KnownOptimizer kBatchedOptimizers[] = {
    {"sgd", TableOptimizer::kSgd, ""},
    {"approx_sgd", TableOptimizer::kSgd, ""},
    {"adagrad", TableOptimizer::kAdagrad, ""},
    {"rowwise_adagrad", TableOptimizer::kRowwiseAdagrad, ""},
    {"approx_rowwise_adagrad", TableOptimizer::kRowwiseAdagrad, ""},
    {"rowwise_adagrad_with_counter", TableOptimizer::kRowwiseAdagrad, "its counters are left out"},
    {"adam", TableOptimizer::kAdam, ""},
    {"lamb", TableOptimizer::kAdam, "its state is as large"},
    {"partial_rowwise_adam", TableOptimizer::kAdagrad, "its state per row is left out"},
    {"partial_rowwise_lamb", TableOptimizer::kAdagrad, "its state per row is left out"},
    {"lars_sgd", TableOptimizer::kAdagrad, "its state is as large"},
    {"none", TableOptimizer::kNone, ""}};

// By the class of torch.optim.
constexpr KnownOptimizer kStepOptimizers[] = {{"SGD", TableOptimizer::kSgd, ""},
                                              {"Adagrad", TableOptimizer::kAdagrad, ""},
                                              {"Adam", TableOptimizer::kAdam, ""},
                                              {"AdamW", TableOptimizer::kAdam, ""},
                                              {"SparseAdam", TableOptimizer::kAdam, ""}};

/// "fbgemm::split_embedding_codegen_lookup_rowwise_adagrad_function" -> "rowwise_adagrad"; of dense
/// gradients "".
std::string_view batched_optimizer(std::string_view op_name) {
  constexpr std::string_view kBefore = "_lookup_", kBehind = "_function";
  const std::size_t begin = op_name.find(kBefore) + kBefore.size();
  const std::size_t end = op_name.find(kBehind, begin);
  return end == std::string_view::npos ? std::string_view() : op_name.substr(begin, end - begin);
}

class TableFinder {
 public:
  explicit TableFinder(const StepView& step)
      : graph_(step.graph()), table_of_weight_(step.tensors(), kNone) {}

  Result<GraphTables> find() {
    const GraphIteration window = first_step(graph_);
    find_step_optimizers(window);
    for (std::int32_t i = window.begin; i < window.end; ++i) PERFMODEL_TRY_TO(read(graph_.node(i)));
    if (found_.tables.empty()) {
      return decline("expected lookups in embedding tables, found none");
    }
    settle_batch();
    find_layers();
    return std::move(found_);
  }

 private:
  static bool is_bag(std::string_view name) {
    return name == "aten::embedding_bag" || name == "aten::_embedding_bag" ||
           name == "aten::_embedding_bag_forward_only";
  }

  void find_layers() {
    std::string why;
    found_.dense = layers_in_graph(graph_, found_.tables, why);
    if (!why.empty()) {
      found_.warnings.push_back("layers: not understood, left out: " + why);
    }
  }

  /// Inside of another lookup, or computed again in the backward pass.
  bool repeats(const Node& op) const {
    const auto holds = [&](std::int32_t at) {
      const std::string_view name = graph_.name(at);
      return is_bag(name) || is_evaluate_function(graph_, graph_.node(at));
    };
    return graph_.find_around(op.parent, holds) >= 0;
  }

  Result<void> read(const Node& op) {
    const std::string_view name = graph_.name(op);
    const bool batched = ops::is_batched_lookup(name), bag = is_bag(name);
    if ((!batched && !bag && !is_row_lookup(name)) || repeats(op)) return {};
    const OpView view{graph_, op};
    if (batched) return read_batched(view);
    const auto shape = bag ? ops::read_bag(view) : ops::read_lookup(view);
    if (!shape || shape->num_rows < 1 || shape->dim < 1) return refuse(op);
    read_single(view, *shape, bag);
    return {};
  }

  Unexpected refuse(const Node& op) const {
    return decline(fmt::format("expected the arguments of {}, found others (node {})",
                               graph_.name(op), op.id));
  }

  Result<void> read_batched(const OpView& op) {
    const auto lookup = ops::read_batched_lookup(op);
    if (!lookup) return refuse(op.node);
    const std::int64_t count = lookup->shape.num_tables;
    const auto total_dim = static_cast<std::int64_t>(lookup->total_dim);
    const bool same_width = lookup->max_dim * count == total_dim;
    const auto rows = std::llround(lookup->total_rows);
    if (rows < count) return refuse(op.node);
    const std::int64_t unit = total_dim % 4 == 0 && total_dim / 4 >= count ? 4 : 1;  // in columns
    for (std::int64_t i = 0; i < count; ++i) {
      ShardedTable table = table_like(op, lookup->shape);
      table.rows = share_of(rows, count, i, 1);
      table.dim = share_of(total_dim, count, i, unit);
      table.optimizer = optimizer_of(op.name());
      table.weighted = lookup->weighted;
      table.pooled = lookup->pooled;
      table.features = {
          {.pooling_factor = lookup->shape.pooling_factor, .batch = lookup->shape.batch}};
      found_.tables.push_back(std::move(table));
    }
    if (count == 1) return {};
    found_.warnings.push_back(fmt::format(
        "{} tables are read at once (node {}): only the sums of their rows ({}) and ids{} are "
        "known, each table gets its share",
        count, op.node.id, rows, same_width ? "" : fmt::format(" and widths ({})", total_dim)));
    return {};
  }

  void read_single(const OpView& op, const EmbeddingShape& shape, bool is_bag) {
    const Tensor& weight = *op.tensor_input(0);
    const Tensor& indices = *op.tensor_input(1);
    // In plain lookups the first axis of the indices is the sample.
    const bool has_axes = !is_bag && indices.rank > 1;
    const std::int64_t batch = has_axes ? op.shape(indices)[0] : shape.batch;
    if (batch <= 0 || indices.numel == 0) return warn_of_empty(op.node);
    std::size_t& of_weight = table_of_weight_[weight];
    if (of_weight == kNone) {
      of_weight = found_.tables.size();
      ShardedTable table = table_like(op, shape);
      table.rows = static_cast<std::int64_t>(shape.num_rows);
      table.dim = static_cast<std::int64_t>(shape.dim);
      table.optimizer = step_optimizer();
      const Tensor* weights = is_bag ? op.tensor_input(6) : nullptr;
      table.weighted = weights && weights->numel > 0;
      table.pooled = is_bag;
      table.features.clear();
      found_.tables.push_back(std::move(table));
    }
    found_.tables[of_weight].features.push_back(
        {.pooling_factor = static_cast<double>(indices.numel) / static_cast<double>(batch),
         .batch = batch});
  }

  /// Name, types and skew.
  ShardedTable table_like(const OpView& op, const EmbeddingShape& shape) const {
    ShardedTable table{.name = fmt::format("table_{}", found_.tables.size())};
    table.element_bytes = static_cast<int>(shape.weight_bytes);
    const int output = static_cast<int>(shape.output_bytes);
    if (output > 0 && output != table.element_bytes) table.output_bytes = output;
    table.skew.exponent = op.node.index_zipf_exponent;
    return table;
  }

  TableOptimizer optimizer_of(std::string_view op_name) {
    if (op_name.find("dense_embedding") != std::string_view::npos) return step_optimizer();
    const std::string_view name = batched_optimizer(op_name);
    const auto* known = std::ranges::find(kBatchedOptimizers, name, &KnownOptimizer::name);
    if (known == std::end(kBatchedOptimizers)) {
      warn_once(fmt::format("optimizer {} is not known, its state is left out", name));
      return TableOptimizer::kNone;
    }
    if (!known->differs.empty()) {
      warn_once(fmt::format("optimizer {} counts as {}: {}", name, to_string(known->optimizer),
                            known->differs));
    }
    return known->optimizer;
  }

  void find_step_optimizers(const GraphIteration& window) {
    constexpr std::string_view kBefore = "Optimizer.step#", kBehind = ".step";
    for (std::int32_t i = window.begin; i < window.end; ++i) {
      std::string_view name = graph_.name(i);
      if (!name.starts_with(kBefore)) continue;
      name.remove_prefix(kBefore.size());
      if (name.ends_with(kBehind)) name.remove_suffix(kBehind.size());
      add_once(steps_, name);
    }
  }

  /// Optimizer for tables whose gradients the step takes.
  TableOptimizer step_optimizer() {
    if (steps_.empty()) {
      warn_once("no optimizer is recorded, its state is left out");
      return TableOptimizer::kNone;
    }
    if (steps_.size() > 1) {
      warn_once(fmt::format("optimizers {} are recorded, tables are taken to have the first",
                            fmt::join(steps_, ", ")));
    }
    const auto* known = std::ranges::find(kStepOptimizers, steps_.front(), &KnownOptimizer::name);
    if (known != std::end(kStepOptimizers)) return known->optimizer;
    warn_once(fmt::format("optimizer {} is not known, its state is left out", steps_.front()));
    return TableOptimizer::kNone;
  }

  void warn_once(std::string warning) {
    if (warned_.insert(warning).second) found_.warnings.push_back(std::move(warning));
  }

  void warn_of_empty(const Node& op) {
    found_.warnings.push_back(
        fmt::format("{} without ids is left out (node {})", graph_.name(op), op.id));
  }

  std::int64_t ranks() const {
    std::int64_t most = 1;
    for (const CommRecord& record : graph_.comm_records) most = std::max(most, record.group_size);
    return most;
  }

  std::set<std::int64_t> batches() const {
    std::set<std::int64_t> sizes;
    for (const ShardedTable& table : found_.tables) {
      for (const TableFeature& feature : table.features) sizes.insert(*feature.batch);
    }
    return sizes;
  }

  /// If a rank holds whole tables, their lookups there have the samples of all ranks.
  void divide_among_ranks() {
    const std::int64_t count = ranks();
    const std::set<std::int64_t> sizes = batches();
    if (count == 1) return;
    const bool both = sizes.size() == 2 && *sizes.rbegin() == count * *sizes.begin();
    found_.warnings.push_back(
        fmt::format("the graph is one of {} ranks: tables that only others have are not in it{}",
                    count, both ? "" : ", lookups may be those of the samples of all ranks"));
    if (!both) return;
    for (ShardedTable& table : found_.tables) {
      for (TableFeature& feature : table.features) feature.batch = *sizes.begin();
    }
  }

  /// One batch size is the graph's; several stay with their features.
  void settle_batch() {
    divide_among_ranks();
    const std::set<std::int64_t> sizes = batches();
    if (sizes.size() > 1) {
      found_.warnings.push_back(
          fmt::format("lookups have different batches: {}", fmt::join(sizes, ", ")));
      return;
    }
    found_.batch = *sizes.begin();
    for (ShardedTable& table : found_.tables) {
      for (TableFeature& feature : table.features) feature.batch.reset();
    }
  }

  static constexpr std::size_t kNone = -1;
  const ExecutionGraph& graph_;
  GraphTables found_;
  std::vector<std::string_view> steps_;  // classes of optimizers
  FactsOfValues<std::size_t> table_of_weight_;
  std::set<std::string> warned_;
};

}  // namespace

Result<GraphTables> tables_in_graph(const ExecutionGraph& graph) {
  return TableFinder(StepView(graph)).find();
}

}  // namespace perfmodel::sharding
