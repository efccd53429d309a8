#include "perfmodel/graph/build_recommenders.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "builders/emit/ops.hpp"
#include "builders/emit/optimizers.hpp"
#include "config_checks.hpp"
#include "dlrm_parts.hpp"
#include "training_step.hpp"

namespace perfmodel {
namespace {

constexpr double kSgdLearningRate = 0.01, kAdamLearningRate = 0.001;

std::vector<EmbeddingTable> equal_tables(int count, std::int64_t rows, std::int64_t dim,
                                         double pooling_factor) {
  return std::vector<EmbeddingTable>(
      static_cast<std::size_t>(count),
      {.num_rows = rows, .dim = dim, .pooling_factor = pooling_factor});
}

std::int64_t lookups(const DlrmConfig& config, const EmbeddingTable& table) {
  return std::llround(static_cast<double>(config.batch) * table.pooling_factor);
}

TrainingOptions::Optimizer dense_optimizer(const DlrmConfig& config) {
  using Optimizer = TrainingOptions::Optimizer;
  if (config.dense_optimizer) return *config.dense_optimizer;
  switch (config.optimizer) {
    case DlrmConfig::Optimizer::kSgd:
      return Optimizer::kSgd;
    case DlrmConfig::Optimizer::kAdam:
    case DlrmConfig::Optimizer::kSparseAdam:
      return Optimizer::kAdam;
    case DlrmConfig::Optimizer::kAdagrad:
    case DlrmConfig::Optimizer::kRowwiseAdagrad:
      break;
  }
  return Optimizer::kAdagrad;
}

Result<void> check_widths(std::string_view what, const std::vector<std::int64_t>& widths) {
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (widths[i] < 1) {
      return bad_config(
          fmt::format("{}: expected positive widths, found {} at position {}", what, widths[i], i));
    }
  }
  return {};
}

Result<void> check_tables(const DlrmConfig& config) {
  if (config.tables.empty()) return bad_config("tables: expected at least one, found none");
  const std::int64_t vector_width = config.bottom_mlp.back();
  double elements = 0, all_lookups = 0, widths = 0;
  for (std::size_t i = 0; i < config.tables.size(); ++i) {
    const EmbeddingTable& table = config.tables[i];
    if (table.num_rows < 1 || table.dim < 1) {
      return bad_config(fmt::format("table {}: expected positive rows and dim, found {} x {}", i,
                                    table.num_rows, table.dim));
    }
    if (!(table.pooling_factor > 0) || !std::isfinite(table.pooling_factor)) {
      return bad_config(fmt::format("table {}: expected a positive pooling factor, found {}", i,
                                    table.pooling_factor));
    }
    if (config.interaction_dot && config.cross.layers == 0 && table.dim != vector_width) {
      return bad_config(fmt::format(
          "table {}: expected dim {}, the last width of the bottom MLP (dot products need equal "
          "vectors), found {}",
          i, vector_width, table.dim));
    }
    elements += static_cast<double>(table.num_rows) * static_cast<double>(table.dim);
    all_lookups += static_cast<double>(config.batch) * table.pooling_factor;
    widths += static_cast<double>(table.dim);
  }
  const double most = static_cast<double>(kMostElements);
  if (elements > most || all_lookups > most || widths * static_cast<double>(config.batch) > most) {
    return bad_config("tables: expected less than 2^60 elements and lookups, found more");
  }
  return {};
}

std::string_view optimizer_text(DlrmConfig::Optimizer optimizer) {
  switch (optimizer) {
    case DlrmConfig::Optimizer::kSgd:
      return "SGD";
    case DlrmConfig::Optimizer::kAdagrad:
      return "Adagrad";
    case DlrmConfig::Optimizer::kAdam:
      return "Adam";
    case DlrmConfig::Optimizer::kSparseAdam:
      return "SparseAdam";
    case DlrmConfig::Optimizer::kRowwiseAdagrad:
      break;
  }
  return "row-wise Adagrad";
}

bool has_sparse_gradients(const DlrmConfig& config) {
  return !config.table_batched && config.sparse_gradients;
}

// PyTorch's Adam refuses sparse gradients, SparseAdam all others.
Result<void> check_table_optimizer(const DlrmConfig& config) {
  using Optimizer = DlrmConfig::Optimizer;
  const bool sparse = has_sparse_gradients(config);
  const auto refuse = [&](std::string_view expected, std::string_view found) {
    return bad_config(fmt::format("optimizer: expected {} for {}, found {}", expected,
                                  optimizer_text(config.optimizer), found));
  };
  if (config.optimizer == Optimizer::kSparseAdam && !sparse) {
    return refuse("sparse gradients of one nn.EmbeddingBag per table",
                  config.table_batched ? "batched tables" : "dense gradients");
  }
  if (config.optimizer == Optimizer::kRowwiseAdagrad && !config.table_batched) {
    return refuse("batched tables", "one nn.EmbeddingBag per table");
  }
  if (config.optimizer == Optimizer::kAdam && sparse) {
    return refuse("batched tables or dense gradients",
                  "one nn.EmbeddingBag per table with sparse gradients");
  }
  return {};
}

Result<void> check_optimizers(const DlrmConfig& config) {
  if (config.table_batched && !config.training.pytorch.on_gpu()) {
    return bad_config("tables: expected a GPU for batched tables, found a CPU");
  }
  if (auto good = check_table_optimizer(config); !good) return good;
  if (config.dense_optimizer && !config.table_batched && !config.sparse_gradients) {
    return bad_config(
        "optimizer: expected batched tables or sparse gradients for an optimizer of the MLPs "
        "alone, found one nn.EmbeddingBag per table with dense gradients");
  }
  if (has_sparse_gradients(config) && config.training.weight_decay.value_or(0) != 0) {
    return bad_config(fmt::format("weight decay: expected none with sparse gradients, found {}",
                                  *config.training.weight_decay));
  }
  return check_optimizer(dense_optimizer(config), config.training.implementation,
                         config.training.pytorch);
}

Result<void> check(const DlrmConfig& config) {
  if (config.batch < 1) {
    return bad_config(fmt::format("batch: expected at least 1, found {}", config.batch));
  }
  if (config.bottom_mlp.size() < 2) {
    return bad_config(fmt::format(
        "bottom MLP: expected the width of its input and of at least one layer, found {} widths",
        config.bottom_mlp.size()));
  }
  if (auto good = check_widths("bottom MLP", config.bottom_mlp); !good) return good;
  if (config.top_mlp.empty() || config.top_mlp.back() != 1) {
    return bad_config(fmt::format(
        "top MLP: expected a last width of 1, found {}",
        config.top_mlp.empty() ? std::string("no widths") : std::to_string(config.top_mlp.back())));
  }
  if (auto good = check_widths("top MLP", config.top_mlp); !good) return good;
  if (auto good = check_tables(config); !good) return good;
  if (auto good = check_optimizers(config); !good) return good;
  if (config.cross.layers < 0 || config.cross.layers > kMostLayers || config.cross.rank < 1 ||
      config.cross.rank > kMostElements >> 30) {
    return bad_config(
        fmt::format("cross: expected 0 to {} layers of rank 1 to 2^30, found {} of rank {}",
                    kMostLayers, config.cross.layers, config.cross.rank));
  }
  // The largest activation; batch times width must stay countable.
  for (const auto& widths : {config.bottom_mlp, config.top_mlp, {interaction_width(config)}}) {
    for (std::int64_t width : widths) {
      if (width > kMostElements / config.batch) {
        return bad_config(fmt::format("batch: expected less than 2^60 activations, found {} x {}",
                                      config.batch, width));
      }
    }
  }
  return {};
}

TrainingOptions training_options(const DlrmConfig& config) {
  TrainingOptions options = config.training;
  options.optimizer = dense_optimizer(config);
  return options;
}

// Optimizer of the tables, if it is not the one that walks all parameters.
std::optional<TrainingOptions::Optimizer> sparse_optimizer(const DlrmConfig& config) {
  using Optimizer = TrainingOptions::Optimizer;
  if (!has_sparse_gradients(config)) return {};
  if (config.optimizer == DlrmConfig::Optimizer::kSparseAdam) return Optimizer::kSparseAdam;
  if (!config.dense_optimizer) return {};
  return config.optimizer == DlrmConfig::Optimizer::kSgd ? Optimizer::kSgd : Optimizer::kAdagrad;
}

class DlrmBuilder : public ModelBuilder<DlrmConfig> {
 public:
  explicit DlrmBuilder(const DlrmConfig& config)
      : ModelBuilder(config, training_options(config), sparse_optimizer(config)) {}

  ExecutionGraph build() {
    make_parameters();
    return step_.run(TrainingStep::Parts{.inputs = [this] { copy_batch(); },
                                         .forward = [this] { return forward(); }});
  }

 private:
  struct CrossLayer {
    TensorRef w, v, bias;
  };

  // Tables come first, then bottom and top MLP: the order in which the reference DLRM registers
  // them is the order in which the optimizer walks.
  void make_parameters() {
    if (!config_.table_batched) {
      for (const EmbeddingTable& table : config_.tables) {
        weights_.push_back(step_.parameter({table.num_rows, table.dim}, config_.sparse_gradients));
      }
    }
    const auto make = [this](Shape shape) { return step_.parameter(std::move(shape)); };
    bottom_ = make_layers(config_.bottom_mlp, make);
    make_cross_layers();
    std::vector<std::int64_t> top = {interaction_width(config_)};
    top.insert(top.end(), config_.top_mlp.begin(), config_.top_mlp.end());
    top_ = make_layers(top, make);
  }

  // TorchRec registers all W, then all V, then all biases.
  void make_cross_layers() {
    const std::int64_t width = interaction_width(config_), rank = config_.cross.rank;
    cross_.resize(config_.cross.layers);
    for (CrossLayer& layer : cross_) layer.w = step_.parameter({width, rank});
    for (CrossLayer& layer : cross_) layer.v = step_.parameter({rank, width});
    for (CrossLayer& layer : cross_) layer.bias = step_.parameter({width});
  }

  // Dense features, indices and offsets (all tables together, or indices per table and the offsets
  // stacked), labels.
  void copy_batch() {
    const auto tables = static_cast<std::int64_t>(config_.tables.size());
    dense_ = step_.input(DType::kFloat32, {config_.batch, config_.bottom_mlp.front()});
    if (config_.table_batched) {
      std::int64_t total = 0;
      for (const EmbeddingTable& table : config_.tables) total += lookups(config_, table);
      indices_.push_back(step_.input(DType::kInt64, {total}));
      offsets_.push_back(step_.input(DType::kInt64, {tables * config_.batch + 1}));
    } else {
      for (const EmbeddingTable& table : config_.tables) {
        indices_.push_back(step_.input(DType::kInt64, {lookups(config_, table)}));
      }
      if (config_.stacked_offsets) {
        offsets_.push_back(step_.input(DType::kInt64, {tables, config_.batch}));
      } else {
        for (std::int64_t i = 0; i < tables; ++i) {
          offsets_.push_back(step_.input(DType::kInt64, {config_.batch}));
        }
      }
    }
    const Shape samples = cross_.empty() ? Shape{config_.batch, 1} : Shape{config_.batch};
    labels_ = step_.input(DType::kFloat32, samples);
  }

  TensorRef forward() {
    const TensorRef x = multilayer_perceptron(tape_, dense_, bottom_);
    std::vector<TensorRef> vectors = embeddings();
    vectors.insert(vectors.begin(), x);
    const TensorRef y = multilayer_perceptron(tape_, interaction(x, vectors), top_, true);
    if (!cross_.empty()) {
      return binary_cross_entropy_with_logits(tape_, squeeze(tape_, y, -1), labels_);
    }
    return binary_cross_entropy(tape_, sigmoid(tape_, y), labels_);
  }

  TensorRef interaction(TensorRef x, const std::vector<TensorRef>& vectors) {
    if (!cross_.empty()) return cross_network(cat(tape_, vectors, 1));
    return config_.interaction_dot ? dot_interaction(x, vectors) : cat(tape_, vectors, 1);
  }

  TensorRef cross_network(TensorRef x0) {
    TensorRef x = x0;
    for (const CrossLayer& layer : cross_) {
      const TensorRef narrow = linear(tape_, x, layer.v), wide = linear(tape_, narrow, layer.w);
      x = add(tape_, mul(tape_, x0, add(tape_, wide, layer.bias)), x);
    }
    return x;
  }

  std::vector<TensorRef> embeddings() {
    if (config_.table_batched) {
      return {table_batched_lookup(tape_, table_batch(), config_.batch, indices_[0], offsets_[0])};
    }
    std::vector<TensorRef> vectors;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const TensorRef offsets =
          config_.stacked_offsets
              ? select(graph_, offsets_[0], 0, static_cast<std::int64_t>(i), tape_.sequence())
              : offsets_[i];
      vectors.push_back(
          embedding_bag(tape_, weights_[i], indices_[i], offsets, config_.sparse_gradients));
    }
    return vectors;
  }

  TableBatch table_batch() const {
    TableBatch tables;
    switch (config_.optimizer) {
      case DlrmConfig::Optimizer::kSgd:
        tables.optimizer = TableBatch::Optimizer::kSgd;
        break;
      case DlrmConfig::Optimizer::kRowwiseAdagrad:
        tables.optimizer = TableBatch::Optimizer::kRowwiseAdagrad;
        break;
      case DlrmConfig::Optimizer::kAdagrad:
        tables.optimizer = TableBatch::Optimizer::kAdagrad;
        break;
      case DlrmConfig::Optimizer::kAdam:
        tables.optimizer = TableBatch::Optimizer::kAdam;
        break;
      case DlrmConfig::Optimizer::kSparseAdam:  // only of single tables
        break;
    }
    const bool adam = config_.optimizer == DlrmConfig::Optimizer::kAdam;
    tables.learning_rate =
        config_.training.learning_rate.value_or(adam ? kAdamLearningRate : kSgdLearningRate);
    for (const EmbeddingTable& table : config_.tables) {
      tables.rows.push_back(table.num_rows);
      tables.dims.push_back(table.dim);
    }
    return tables;
  }

  // [B, M, D] times its transpose; of the M x M products those below the diagonal.
  TensorRef dot_interaction(TensorRef x, const std::vector<TensorRef>& vectors) {
    const std::int64_t dim = config_.bottom_mlp.back();
    const auto count = static_cast<std::int64_t>(config_.tables.size()) + 1;
    const std::int64_t pairs = count * (count - 1) / 2;
    const TensorRef stacked = view(tape_, cat(tape_, vectors, 1), {config_.batch, -1, dim});
    const TensorRef products = bmm(tape_, stacked, transpose(tape_, stacked, 1, 2));
    const TensorRef row = graph_.new_tensor(DType::kInt64, {pairs});
    const TensorRef column = graph_.new_tensor(DType::kInt64, {pairs});
    return cat(tape_, {x, index_matrix(tape_, products, row, column)}, 1);
  }

  std::vector<TensorRef> weights_;  // tables, unless batched
  std::vector<DenseLayer> bottom_, top_;
  std::vector<CrossLayer> cross_;
  TensorRef dense_, labels_;
  std::vector<TensorRef> indices_, offsets_;
};

}  // namespace

Result<DlrmConfig> dlrm_preset(std::string_view name) {
  DlrmConfig config;
  config.name = name;
  if (name == "default") {
    config.bottom_mlp = {512, 512, 64};
    config.top_mlp = {1024, 1024, 1024, 1};
    config.tables = equal_tables(8, 1'000'000, 64, 100);
  } else if (name == "mlperf") {
    config.bottom_mlp = {13, 512, 256, 128};
    config.top_mlp = {1024, 1024, 512, 256, 1};
    for (std::int64_t rows : criteo_rows_mlperf()) {
      config.tables.push_back({.num_rows = rows, .dim = 128, .pooling_factor = 1});
    }
  } else if (name == "ddp") {
    config.bottom_mlp = {128, 128, 128, 128};
    config.top_mlp = {512, 512, 512, 256, 1};
    config.tables = equal_tables(8, 80'000, 128, 10);
  } else if (name == "dcnv2" || name == "mlperf-v3") {
    config.bottom_mlp = {13, 512, 256, 128};
    config.top_mlp = {1024, 1024, 512, 256, 1};
    config.cross = {.layers = 3, .rank = 512};
    config.batch = 8192;
    config.optimizer = DlrmConfig::Optimizer::kAdagrad;
    for (std::size_t i = 0; i < criteo_rows_mlperf_v3().size(); ++i) {
      config.tables.push_back(
          {.num_rows = criteo_rows_mlperf_v3()[i],
           .dim = 128,
           .pooling_factor = static_cast<double>(criteo_pooling_mlperf_v3()[i])});
    }
  } else {
    return unknown_preset("a DLRM preset", name, {"default", "mlperf", "ddp", "dcnv2"});
  }
  return config;
}

std::int64_t interaction_width(const DlrmConfig& config) {
  std::int64_t width = config.bottom_mlp.back();
  if (config.interaction_dot && config.cross.layers == 0) {
    const auto vectors = static_cast<std::int64_t>(config.tables.size()) + 1;
    return width + vectors * (vectors - 1) / 2;
  }
  for (const EmbeddingTable& table : config.tables) width += table.dim;
  return width;
}

Result<ExecutionGraph> build_dlrm(const DlrmConfig& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  return DlrmBuilder(config).build();
}

}  // namespace perfmodel
