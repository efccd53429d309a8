#include "perfmodel/graph/build_recommenders.hpp"

#include "settings.hpp"

namespace perfmodel {

// A table is [rows, dim, pooling factor]; in a preset of a sharded job [rows, dim, pooling, rank].
static Item item_of(const std::vector<EmbeddingTable>& tables) {
  Item::List all;
  for (const EmbeddingTable& table : tables) {
    all.emplace_back(Item::List{table.num_rows, table.dim, table.pooling_factor});
  }
  return all;
}
// And in such a job [rows, dim, pooling, rank, kind, shards], a shard [row offset, rows, column
// offset, columns, rank].
static Item item_of(const std::vector<PlacedTable>& tables) {
  Item::List all;
  for (const PlacedTable& table : tables) {
    Item::List shards;
    for (const TableShard& shard : table.shards) {
      shards.emplace_back(
          Shape{shard.row_offset, shard.rows, shard.column_offset, shard.columns, shard.rank});
    }
    all.emplace_back(Item::List{table.num_rows, table.dim, table.pooling_factor, table.rank,
                                std::string(to_string(table.kind())), std::move(shards)});
  }
  return all;
}
template <class Table>
static void take_tables(const Item& item, std::vector<Table>& tables) {
  for (const Item& one : item.list()) {
    const Item::List& sizes = one.list();
    Table& table = tables.emplace_back();
    take_item(sizes[0], table.num_rows);
    take_item(sizes[1], table.dim);
    take_item(sizes[2], table.pooling_factor);
    if (sizes.size() > 3) table.rank = *sizes[3].get<std::int64_t>();
  }
}
static void take_item(const Item& item, std::vector<EmbeddingTable>& tables) {
  take_tables(item, tables);
}
static void take_item(const Item& item, std::vector<PlacedTable>& tables) {
  take_tables(item, tables);
}

template <class Visit>
void visit_settings(DlrmConfig& config, Visit visit) {
  constexpr double kLearningRate = 0.01, kAdamLearningRate = 0.001;
  const bool adam = config.optimizer == DlrmConfig::Optimizer::kAdam;
  double learning_rate =
      config.training.learning_rate.value_or(adam ? kAdamLearningRate : kLearningRate);
  double weight_decay = config.training.weight_decay.value_or(0);
  bool trains_apart = config.dense_optimizer.has_value();
  visit("learning_rate", learning_rate);
  visit("weight_decay", weight_decay);
  visit("trains_apart", trains_apart);
  visit("bottom_mlp", config.bottom_mlp);
  visit("top_mlp", config.top_mlp);
  visit("tables", config.tables);
  visit("batch", config.batch);
  visit("optimizer", config.optimizer,
        Words{"sgd", "rowwise_adagrad", "adagrad", "adam", "sparse_adam"});
  visit("table_batched", config.table_batched);
  visit("interaction_dot", config.interaction_dot);
  visit("cross_layers", config.cross.layers);
  visit("cross_rank", config.cross.rank);
  visit("sparse_gradients", config.sparse_gradients);
  visit("stacked_offsets", config.stacked_offsets);
}

template <class Visit>
void visit_settings(TorchrecDlrmConfig& config, Visit visit) {
  visit("bottom_mlp", config.bottom_mlp);
  visit("top_mlp", config.top_mlp);
  visit("tables", config.tables);
  visit("batch_per_rank", config.batch_per_rank);
  visit("table_optimizer", config.table_optimizer,
        Words{"sgd", "rowwise_adagrad", "adagrad", "adam"});
  visit("world_size", config.world_size);
  visit("local_world_size", config.local_world_size);
  visit("rank", config.rank);
  visit("first_collective", config.first_collective);
}

namespace {

TrainingOptions::Optimizer dense_optimizer(const DlrmConfig& config) {
  using Optimizer = TrainingOptions::Optimizer;
  if (config.dense_optimizer) return *config.dense_optimizer;
  switch (config.optimizer) {
    case DlrmConfig::Optimizer::kSgd: return Optimizer::kSgd;
    case DlrmConfig::Optimizer::kAdam:
    case DlrmConfig::Optimizer::kSparseAdam: return Optimizer::kAdam;
    case DlrmConfig::Optimizer::kAdagrad:
    case DlrmConfig::Optimizer::kRowwiseAdagrad: break;
  }
  return Optimizer::kAdagrad;
}

bool has_sparse_gradients(const DlrmConfig& config) {
  return !config.table_batched && config.sparse_gradients;
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

// The device is the rank's place on its host; an impossible one is refused later.
TrainingOptions training_options(const TorchrecDlrmConfig& config) {
  const std::int64_t local =
      config.local_world_size > 0 ? config.local_world_size : config.world_size;
  TrainingOptions options;
  options.pytorch = {.major = 2, .minor = 0};
  options.pytorch.device.index =
      static_cast<std::int16_t>(config.rank % std::max<std::int64_t>(local, 1));
  options.optimizer = TrainingOptions::Optimizer::kNoOptimizer;
  options.step_label.clear();
  return options;
}

}  // namespace

std::string_view to_string(TableSharding sharding) {
  static constexpr std::string_view kNames[] = {"data_parallel",     "table_wise", "column_wise",
                                                "table_column_wise", "row_wise",   "table_row_wise",
                                                "grid_shard"};
  return kNames[static_cast<std::size_t>(sharding)];
}

Result<DlrmConfig> dlrm_preset(std::string_view name) {
  const bool by_version = name == "mlperf-v3";  // another name of it
  auto config = preset_of<DlrmConfig>("dlrm", "a DLRM preset", by_version ? "dcnv2" : name);
  if (config) config->name = name;
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
  return build_module("dlrm", config, training_options(config), sparse_optimizer(config));
}

Result<ExecutionGraph> build_torchrec_dlrm(const TorchrecDlrmConfig& config) {
  return build_module("torchrec", config, training_options(config));
}

Result<TorchrecDlrmConfig> torchrec_dlrm_preset(std::string_view name) {
  return preset_of<TorchrecDlrmConfig>("torchrec", "a TorchRec preset", name);
}

}  // namespace perfmodel
