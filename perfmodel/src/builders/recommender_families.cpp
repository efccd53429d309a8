#include <fmt/format.h>

#include <algorithm>

#include "base/each_name.hpp"
#include "base/number_text.hpp"
#include "builders/optimizer_names.hpp"
#include "model_family.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kCrossLayers = 3;  // --interaction dcnv2 without --cross-layers

void choose_interaction(DlrmConfig& config, std::string_view name) {
  config.interaction_dot = name == "dot";
  if (name != "dcnv2") config.cross.layers = 0;
  if (name == "dcnv2" && config.cross.layers == 0) config.cross.layers = kCrossLayers;
}

Result<void> read_dlrm_tables(DlrmConfig& config, const std::filesystem::path& file) {
  PERFMODEL_TRY(tables, read_embedding_tables(file));
  config.tables = std::move(*tables);
  return {};
}

Result<void> read_placed_tables(TorchrecDlrmConfig& config, const std::filesystem::path& file) {
  PERFMODEL_TRY(tables, read_embedding_tables(file));
  config.tables.clear();
  for (const EmbeddingTable& table : *tables) {
    if (!table.rank) {
      return fail(ErrorCode::kFormat,
                  fmt::format("{}: expected a rank for every table (column rank), found none",
                              file.filename().string()));
    }
    config.tables.push_back({table.num_rows, table.dim, table.pooling_factor, *table.rank});
  }
  return {};
}

std::string dashed(const std::vector<std::int64_t>& widths) {
  return fmt::format("{}", fmt::join(widths, "-"));
}

ModelFacts mlp_facts(const MlpConfig& config) {
  return {.lines = {{"batch", fmt::format("{}", config.batch)}, {"widths", dashed(config.widths)}},
          .keys = {{"batch", config.batch}, {"layers", config.widths.size() - 1}}};
}

ModelFacts dlrm_facts(const DlrmConfig& config) {
  double elements = 0;
  for (const EmbeddingTable& table : config.tables) {
    elements += static_cast<double>(table.num_rows) * static_cast<double>(table.dim);
  }
  return {
      .lines = {{"batch", grouped(config.batch)},
                {"bottom MLP", dashed(config.bottom_mlp)},
                {"top MLP",
                 fmt::format("{}-{}", interaction_width(config), dashed(config.top_mlp))},
                {"tables", fmt::format("{}, {:.2f} GB in all", grouped(config.tables.size()),
                                       elements * 4 / 1e9)}},
      .keys = {
          {"batch", config.batch}, {"tables", config.tables.size()}, {"table_elements", elements}}};
}

ModelFacts torchrec_facts(const TorchrecDlrmConfig& config) {
  const auto here = std::ranges::count(config.tables, config.rank, &PlacedTable::rank);
  const auto everywhere =
      std::ranges::count(config.tables, PlacedTable::kDataParallel, &PlacedTable::rank);
  return {.lines = {{"rank", fmt::format("{} of {}", config.rank, config.world_size)},
                    {"batch", fmt::format("{} per rank", config.batch_per_rank)},
                    {"tables", fmt::format("{}; {} on this rank, {} on all ranks",
                                           config.tables.size(), here, everywhere)}},
          .keys = {PERFMODEL_VALUES(config, batch_per_rank, world_size, rank),
                   {"tables", config.tables.size()},
                   {"tables_on_rank", here},
                   {"tables_on_all_ranks", everywhere}}};
}

}  // namespace

const ModelFamily<MlpConfig>& mlp_family() {
  using Config = MlpConfig;
  static const ModelFamily<Config> family = {
      "mlp",
      "One training step of linear layers on one GPU",
      mlp_preset,
      build_mlp,
      mlp_facts,
      {{"widths", &Config::widths, "Features first, classes last"},
       {"relu_behind_last", &Config::relu_behind_last, "ReLU after the last layer too"},
       {"softmax", &Config::softmax, "Softmax in front of the loss"},
       {"batch", &Config::batch, "Samples per batch"},
       {"name", &Config::name, "Name of the model"}}};
  return family;
}

const ModelFamily<DlrmConfig>& dlrm_family() {
  using Config = DlrmConfig;
  using Cross = Config::LowRankCross;
  static const ModelFamily<Config> family = {
      .name = "dlrm",
      .help = "One training step of a DLRM on one GPU",
      .preset = dlrm_preset,
      .build = build_dlrm,
      .facts = dlrm_facts,
      .fields = {{"bottom", &Config::bottom_mlp, "Bottom MLP, the dense features first"},
                 {"top", &Config::top_mlp, "Top MLP after the interaction, the last width 1"},
                 {"batch", &Config::batch, "Samples per batch", "B"},
                 {"optimizer", choice_of<&Config::optimizer, kTableOptimizerNames>(),
                  "Optimizer of tables and MLPs"},
                 {"dense_optimizer", choice_of<&Config::dense_optimizer, kOptimizerNames>(),
                  "Optimizer of the MLPs alone, where the tables are batched"},
                 {"interaction", ConfigChoice<Config>{{"dot", "cat", "dcnv2"}, choose_interaction},
                  "Dot products of all pairs, vectors side by side, or a low-rank cross network of "
                  "those"},
                 {"cross_layers", kMemberOfPart<&Config::cross, &Cross::layers>,
                  "Layers of the cross network (3)", "N"},
                 {"cross_rank", kMemberOfPart<&Config::cross, &Cross::rank>,
                  "Rank of the cross network (512)", "N"},
                 {"table_batched", &Config::table_batched,
                  "One fused op for all tables, or one op per table", "", true},
                 {"sparse_gradients", &Config::sparse_gradients,
                  "Of tables that are not batched: one entry per lookup, or one per row", "", true},
                 {"stacked_offsets", &Config::stacked_offsets,
                  "Of tables that are not batched: offsets come in one tensor, or one each", "",
                  true},
                 {"name", &Config::name, "Name of the model in the graph"}},
      .read_tables = read_dlrm_tables,
      .tables_help = "Embedding tables: CSV with rows, dim, pooling, or JSON with the same keys",
      .needed = {"--tables", "--bottom", "--top", "--batch"}};
  return family;
}

const ModelFamily<TorchrecDlrmConfig>& torchrec_family() {
  using Config = TorchrecDlrmConfig;
  static const ModelFamily<Config> family = {
      .name = "torchrec",
      .help = "One training step of one rank of a DLRM that TorchRec has sharded",
      .preset = torchrec_dlrm_preset,
      .build = build_torchrec_dlrm,
      .facts = torchrec_facts,
      .fields = {{"bottom", &Config::bottom_mlp, "Bottom MLP, the dense features first"},
                 {"top", &Config::top_mlp, "Top MLP after the interaction, last width 1"},
                 {"batch", &Config::batch_per_rank, "Samples per rank and batch", "B"},
                 {"world", &Config::world_size, "Number of ranks", "N"},
                 {"rank", &Config::rank, "The rank whose graph is made (0)", "R"}},
      .preset_help = "Start from a known job (v100-8); flags override it",
      .preset_takes = {},
      .read_tables = read_placed_tables,
      .tables_help =
          "Embedding tables: CSV with rows, dim, pooling and rank (-1: on all ranks), or JSON with "
          "the same keys",
      .needed = {"--tables", "--bottom", "--top", "--batch", "--world"}};
  return family;
}

std::string family_of_preset(std::string_view preset) {
  std::string found;
  const auto look = [&](const auto& family) {
    // Any decoder is a preset of `decoder`; a family of its own says more.
    const bool better = found.empty() || found == "decoder";
    if (better && family.preset && family.preset(preset)) found = family.name;
  };
  std::apply([&](const auto&... family) { (look(family), ...); }, builder_families());
  return found;
}

}  // namespace perfmodel
