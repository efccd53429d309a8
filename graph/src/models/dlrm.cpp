#include "perfmodel/graph/build_dlrm.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "../emit/activation.hpp"
#include "../emit/concat.hpp"
#include "../emit/embedding.hpp"
#include "../emit/index.hpp"
#include "../emit/loss.hpp"
#include "../emit/matmul.hpp"
#include "../emit/views.hpp"
#include "training_step.hpp"

namespace perfmodel {
namespace {

constexpr double kSgdLearningRate = 0.01;
constexpr double kAdagradLearningRate = 0.01;
constexpr std::int64_t kMostElements = std::int64_t{1} << 60;

// Rows of the categorical features of Criteo Terabyte in the MLPerf training benchmark, hashed
// into at most 40 million.
constexpr std::array<std::int64_t, 26> kCriteoTerabyteRows = {
    39884406, 39043,    17289,    7420,     20263,  3,     7120, 1543, 63,
    38532951, 2953546,  403346,   10,       2208,   11938, 155,  4,    976,
    14,       39979771, 25641295, 39664984, 585935, 12972, 108,  36};

std::vector<EmbeddingTable> equal_tables(int count, std::int64_t rows, std::int64_t dim,
                                         double pooling_factor) {
  return std::vector<EmbeddingTable>(
      static_cast<std::size_t>(count),
      {.num_rows = rows, .dim = dim, .pooling_factor = pooling_factor});
}

std::int64_t lookups(const DlrmConfig& config, const EmbeddingTable& table) {
  return std::llround(static_cast<double>(config.batch) * table.pooling_factor);
}

Unexpected bad_config(std::string message) {
  return fail(ErrorCode::kImpossible, std::move(message));
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
    if (config.interaction_dot && table.dim != vector_width) {
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
  if (config.optimizer == DlrmConfig::Optimizer::kRowwiseAdagrad && !config.table_batched) {
    return bad_config(
        "optimizer: expected batched tables for row-wise Adagrad, found one "
        "nn.EmbeddingBag per table");
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

struct Layer {
  TensorRef weight, bias;
};

TrainingOptions training_options(const DlrmConfig& config) {
  TrainingOptions options;
  options.pinned_input = config.pinned_input;
  options.optimizer = config.optimizer == DlrmConfig::Optimizer::kSgd
                          ? TrainingOptions::Optimizer::kSgd
                          : TrainingOptions::Optimizer::kAdagrad;
  return options;
}

class DlrmBuilder {
 public:
  explicit DlrmBuilder(const DlrmConfig& config)
      : config_(config), step_(training_options(config)) {}

  ExecutionGraph build() {
    make_parameters();
    return step_.run([this] {
      copy_batch();
      return forward();
    });
  }

 private:
  bool sgd() const { return config_.optimizer == DlrmConfig::Optimizer::kSgd; }

  // Tables come first, then bottom and top MLP: the order in which the reference DLRM registers
  // them is the order in which the optimizer walks.
  void make_parameters() {
    if (!config_.table_batched) {
      for (const EmbeddingTable& table : config_.tables) {
        weights_.push_back(step_.parameter({table.num_rows, table.dim}));
      }
    }
    bottom_ = make_layers(config_.bottom_mlp);
    std::vector<std::int64_t> top = {interaction_width(config_)};
    top.insert(top.end(), config_.top_mlp.begin(), config_.top_mlp.end());
    top_ = make_layers(top);
  }

  std::vector<Layer> make_layers(const std::vector<std::int64_t>& widths) {
    std::vector<Layer> layers;
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
      const TensorRef weight = step_.parameter({widths[i + 1], widths[i]});
      layers.push_back({weight, step_.parameter({widths[i + 1]})});
    }
    return layers;
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
      offsets_ = step_.input(DType::kInt64, {tables * config_.batch + 1});
    } else {
      for (const EmbeddingTable& table : config_.tables) {
        indices_.push_back(step_.input(DType::kInt64, {lookups(config_, table)}));
      }
      offsets_ = step_.input(DType::kInt64, {tables, config_.batch});
    }
    labels_ = step_.input(DType::kFloat32, {config_.batch, 1});
  }

  TensorRef forward() {
    TensorRef x = dense_;
    for (const Layer& layer : bottom_) x = relu(tape_, linear(tape_, x, layer.weight, layer.bias));
    std::vector<TensorRef> vectors = embeddings();
    vectors.insert(vectors.begin(), x);
    TensorRef y = config_.interaction_dot ? dot_interaction(x, vectors) : cat(tape_, vectors, 1);
    for (const Layer& layer : top_) {
      y = linear(tape_, y, layer.weight, layer.bias);
      if (layer.weight.index != top_.back().weight.index) y = relu(tape_, y);
    }
    return binary_cross_entropy(tape_, sigmoid(tape_, y), labels_);
  }

  std::vector<TensorRef> embeddings() {
    if (config_.table_batched) {
      return {table_batched_lookup(tape_, table_batch(), config_.batch, indices_[0], offsets_)};
    }
    std::vector<TensorRef> vectors;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      const TensorRef offsets =
          select(graph_, offsets_, 0, static_cast<std::int64_t>(i), tape_.sequence());
      vectors.push_back(embedding_bag(tape_, weights_[i], indices_[i], offsets));
    }
    return vectors;
  }

  TableBatch table_batch() const {
    TableBatch tables;
    tables.optimizer = sgd() ? TableBatch::Optimizer::kSgd : TableBatch::Optimizer::kRowwiseAdagrad;
    tables.learning_rate = sgd() ? kSgdLearningRate : kAdagradLearningRate;
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

  const DlrmConfig& config_;
  TrainingStep step_;
  GraphBuilder& graph_ = step_.graph();
  AutogradTape& tape_ = step_.tape();
  std::vector<TensorRef> weights_;  // of the tables, unless batched
  std::vector<Layer> bottom_, top_;
  TensorRef dense_, offsets_, labels_;
  std::vector<TensorRef> indices_;
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
    for (std::int64_t rows : kCriteoTerabyteRows) {
      config.tables.push_back({.num_rows = rows, .dim = 128, .pooling_factor = 1});
    }
  } else if (name == "ddp") {
    config.bottom_mlp = {128, 128, 128, 128};
    config.top_mlp = {512, 512, 512, 256, 1};
    config.tables = equal_tables(8, 80'000, 128, 10);
  } else {
    return fail(ErrorCode::kUnknownName,
                fmt::format("expected a DLRM preset (default, mlperf, ddp), found \"{}\"", name));
  }
  return config;
}

std::int64_t interaction_width(const DlrmConfig& config) {
  std::int64_t width = config.bottom_mlp.back();
  if (config.interaction_dot) {
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
