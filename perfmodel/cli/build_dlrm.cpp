#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "arguments.hpp"
#include "build_arguments.hpp"
#include "build_commands.hpp"
#include "perfmodel/graph/build_dlrm.hpp"
#include "text_table.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::int64_t kCrossLayers = 3;

// What is not given stays as the preset has it.
struct DlrmArguments {
  BuildArguments build;
  std::string preset, tables;
  std::optional<std::vector<std::int64_t>> bottom, top;
  std::optional<std::int64_t> batch, cross_layers, cross_rank;
  std::optional<std::string> optimizer, interaction, name;
  std::optional<bool> table_batched, pinned_input;
};

std::string dashed(const std::vector<std::int64_t>& widths) {
  return fmt::format("{}", fmt::join(widths, "-"));
}

Result<DlrmConfig> configure(const DlrmArguments& arguments) {
  DlrmConfig config;
  if (!arguments.preset.empty()) {
    auto preset = dlrm_preset(arguments.preset);
    if (!preset) return preset;
    config = std::move(*preset);
  }
  if (!arguments.tables.empty()) {
    auto tables = read_embedding_tables(arguments.tables);
    if (!tables) return Unexpected{tables.error()};
    config.tables = std::move(*tables);
  }
  if (arguments.bottom) config.bottom_mlp = *arguments.bottom;
  if (arguments.top) config.top_mlp = *arguments.top;
  if (arguments.batch) config.batch = *arguments.batch;
  if (arguments.optimizer) {
    config.optimizer = *arguments.optimizer == "rowwise_adagrad"
                           ? DlrmConfig::Optimizer::kRowwiseAdagrad
                       : *arguments.optimizer == "adagrad" ? DlrmConfig::Optimizer::kAdagrad
                                                           : DlrmConfig::Optimizer::kSgd;
  }
  if (arguments.interaction) {
    config.interaction_dot = *arguments.interaction == "dot";
    config.cross.layers = *arguments.interaction != "dcnv2" ? 0
                          : config.cross.layers > 0         ? config.cross.layers
                                                            : kCrossLayers;
  }
  if (arguments.cross_layers) config.cross.layers = *arguments.cross_layers;
  if (arguments.cross_rank) config.cross.rank = *arguments.cross_rank;
  if (arguments.table_batched) config.table_batched = *arguments.table_batched;
  if (arguments.pinned_input) config.pinned_input = *arguments.pinned_input;
  if (arguments.name) config.name = *arguments.name;
  return config;
}

Result<void> execute(const CLI::App& app, const DlrmArguments& arguments) {
  const auto config = configure(arguments);
  if (!config) return Unexpected{config.error()};
  const auto graph = build_dlrm(*config);
  if (!graph) return Unexpected{graph.error()};
  double elements = 0;
  for (const EmbeddingTable& table : config->tables) {
    elements += static_cast<double>(table.num_rows) * static_cast<double>(table.dim);
  }
  ModelFacts facts;
  facts.model = config->name;
  facts.lines = {
      {"batch", grouped(static_cast<std::size_t>(config->batch))},
      {"bottom MLP", dashed(config->bottom_mlp)},
      {"top MLP", fmt::format("{}-{}", interaction_width(*config), dashed(config->top_mlp))},
      {"tables",
       fmt::format("{}, {:.2f} GB in all", grouped(config->tables.size()), elements * 4 / 1e9)}};
  facts.keys = {
      {"batch", config->batch}, {"tables", config->tables.size()}, {"table_elements", elements}};
  return write_built_graph(app, arguments.build, *graph, facts);
}

void add_widths(CLI::App& app, const std::string& name,
                std::optional<std::vector<std::int64_t>>& widths, const std::string& help) {
  const auto parse = [name, &widths](const std::string& text) {
    widths = parse_widths(text);
    if (!widths) {
      throw CLI::ValidationError(name, "expected widths such as 512-256-64, found " + text);
    }
  };
  app.add_option_function<std::string>(name, parse, help)->type_name("W-W-...");
}

void check(const DlrmArguments& arguments) {
  if (!arguments.preset.empty()) return;
  if (arguments.tables.empty() || !arguments.bottom || !arguments.top || !arguments.batch) {
    throw CLI::ValidationError("build dlrm",
                               "expected --preset, or --tables, --bottom, --top and --batch");
  }
}

}  // namespace

Command build_dlrm_command(CLI::App& parent) {
  auto arguments = std::make_shared<DlrmArguments>();
  CLI::App* dlrm = parent.add_subcommand("dlrm", "One training step of a DLRM on one GPU");
  dlrm->add_option("--preset", arguments->preset,
                   "Start from a known model (default, mlperf, ddp, dcnv2); flags override it");
  dlrm->add_option("--tables", arguments->tables,
                   "Embedding tables: CSV with rows, dim, pooling, or JSON with the same keys")
      ->type_name("FILE");
  add_widths(*dlrm, "--bottom", arguments->bottom, "Bottom MLP, the dense features first");
  add_widths(*dlrm, "--top", arguments->top, "Top MLP behind the interaction, the last width 1");
  dlrm->add_option("--batch", arguments->batch, "Samples per batch")->type_name("B");
  dlrm->add_option("--optimizer", arguments->optimizer, "Optimizer of tables and MLPs")
      ->check(CLI::IsMember({"sgd", "adagrad", "rowwise_adagrad"}));
  dlrm->add_option(
          "--interaction", arguments->interaction,
          "Dot products of all pairs, vectors side by side, or a low-rank cross network of "
          "those")
      ->check(CLI::IsMember({"dot", "cat", "dcnv2"}));
  dlrm->add_option("--cross-layers", arguments->cross_layers, "Layers of the cross network (3)")
      ->type_name("N");
  dlrm->add_option("--cross-rank", arguments->cross_rank, "Rank of the cross network (512)")
      ->type_name("R");
  dlrm->add_flag_function(
      "--table-batched,!--no-table-batched",
      [arguments](std::int64_t count) { arguments->table_batched = count > 0; },
      "One fused op for all tables, or one op per table");
  dlrm->add_flag_function(
      "--pinned-input,!--no-pinned-input",
      [arguments](std::int64_t count) { arguments->pinned_input = count > 0; },
      "Whether the batch lies in pinned host memory");
  dlrm->add_option("--name", arguments->name, "Name of the model in the graph");
  add_output_options(*dlrm, arguments->build);
  dlrm->callback([arguments] { check(*arguments); });
  return {dlrm, [dlrm, arguments] { return execute(*dlrm, *arguments); }};
}

}  // namespace perfmodel::cli
