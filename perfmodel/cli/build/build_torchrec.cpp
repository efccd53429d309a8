#include <fmt/format.h>

#include <memory>
#include <optional>

#include "build_arguments.hpp"
#include "build_commands.hpp"
#include "cli/shared/arguments.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

// What is not given stays as the preset has it.
struct TorchrecArguments {
  BuildArguments build;
  std::string preset, tables;
  std::optional<std::vector<std::int64_t>> bottom, top;
  std::optional<std::int64_t> batch, world, rank;
};

Result<std::vector<PlacedTable>> read_placed_tables(const std::string& file) {
  const auto tables = read_embedding_tables(file);
  if (!tables) return Unexpected{tables.error()};
  std::vector<PlacedTable> placed;
  for (const EmbeddingTable& table : *tables) {
    if (!table.rank) {
      return fail(ErrorCode::kFormat,
                  fmt::format("{}: expected a rank for every table (column rank), found none",
                              file_name(file)));
    }
    placed.push_back({table.num_rows, table.dim, table.pooling_factor, *table.rank});
  }
  return placed;
}

Result<TorchrecDlrmConfig> configure(const TorchrecArguments& arguments) {
  TorchrecDlrmConfig config;
  if (!arguments.preset.empty()) {
    auto preset = torchrec_dlrm_preset(arguments.preset);
    if (!preset) return preset;
    config = std::move(*preset);
  }
  if (!arguments.tables.empty()) {
    auto tables = read_placed_tables(arguments.tables);
    if (!tables) return Unexpected{tables.error()};
    config.tables = std::move(*tables);
  }
  if (arguments.bottom) config.bottom_mlp = *arguments.bottom;
  if (arguments.top) config.top_mlp = *arguments.top;
  if (arguments.batch) config.batch_per_rank = *arguments.batch;
  if (arguments.world) config.world_size = *arguments.world;
  if (arguments.rank) config.rank = *arguments.rank;
  return config;
}

Result<void> run_build_torchrec(CommandParser app, const TorchrecArguments& arguments) {
  const auto config = configure(arguments);
  if (!config) return Unexpected{config.error()};
  const auto graph = build_torchrec_dlrm(*config);
  if (!graph) return Unexpected{graph.error()};
  std::size_t here = 0, everywhere = 0;
  for (const PlacedTable& table : config->tables) {
    if (table.rank == config->rank) ++here;
    if (table.rank == PlacedTable::kDataParallel) ++everywhere;
  }
  ModelFacts facts;
  facts.model = config->name;
  facts.lines = {{"rank", fmt::format("{} of {}", config->rank, config->world_size)},
                 {"batch", fmt::format("{} per rank", config->batch_per_rank)},
                 {"tables", fmt::format("{}; {} on this rank, {} on all ranks",
                                        config->tables.size(), here, everywhere)}};
  facts.keys = {{"batch_per_rank", config->batch_per_rank},
                {"world_size", config->world_size},
                {"rank", config->rank},
                {"tables", config->tables.size()},
                {"tables_on_rank", here},
                {"tables_on_all_ranks", everywhere}};
  return write_built_graph(app, arguments.build, *graph, facts);
}

void check_torchrec_flags(const TorchrecArguments& arguments) {
  if (!arguments.preset.empty()) return;
  if (arguments.tables.empty() || !arguments.bottom || !arguments.top || !arguments.batch ||
      !arguments.world) {
    bad_usage("build torchrec",
              "expected --preset, or --tables, --bottom, --top, --batch and --world");
  }
}

}  // namespace

Command build_torchrec_command(CommandParser parent) {
  auto arguments = std::make_shared<TorchrecArguments>();
  const CommandParser torchrec = parent.add_subcommand(
      "torchrec", "One training step of one rank of a DLRM that TorchRec has sharded");
  torchrec.add_option("--preset", arguments->preset,
                      "Start from a known job (v100-8); flags override it");
  torchrec
      .add_option("--tables", arguments->tables,
                  "Embedding tables: CSV with rows, dim, pooling and rank (-1: on all ranks), or "
                  "JSON with the same keys")
      .type_name("FILE");
  add_widths(torchrec, "--bottom", arguments->bottom, "Bottom MLP, the dense features first");
  add_widths(torchrec, "--top", arguments->top, "Top MLP behind the interaction, last width 1");
  torchrec.add_option("--batch", arguments->batch, "Samples per rank and batch").type_name("B");
  torchrec.add_option("--world", arguments->world, "Number of ranks").type_name("N");
  torchrec.add_option("--rank", arguments->rank, "The rank whose graph is made (0)").type_name("R");
  add_output_options(torchrec, arguments->build);
  torchrec.callback([arguments] { check_torchrec_flags(*arguments); });
  return {torchrec, [torchrec, arguments] { return run_build_torchrec(torchrec, *arguments); }};
}

}  // namespace perfmodel::cli
