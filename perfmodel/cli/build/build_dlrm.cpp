#include <fmt/format.h>

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::int64_t kCrossLayers = 3;  // of --interaction dcnv2 without --cross-layers

struct DlrmArguments : ConfigArguments<DlrmConfig> {
  std::string tables;
};

std::string dashed(const std::vector<std::int64_t>& widths) {
  return fmt::format("{}", fmt::join(widths, "-"));
}

Result<DlrmConfig> configure(const DlrmArguments& arguments) {
  auto config = arguments.configure(dlrm_preset);
  if (!config || arguments.tables.empty()) return config;
  auto tables = read_embedding_tables(arguments.tables);
  if (!tables) return Unexpected{tables.error()};
  config->tables = std::move(*tables);
  return config;
}

Result<void> run_build_dlrm(CommandParser app, const DlrmArguments& arguments) {
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
      {"batch", grouped(config->batch)},
      {"bottom MLP", dashed(config->bottom_mlp)},
      {"top MLP", fmt::format("{}-{}", interaction_width(*config), dashed(config->top_mlp))},
      {"tables",
       fmt::format("{}, {:.2f} GB in all", grouped(config->tables.size()), elements * 4 / 1e9)}};
  facts.keys = {
      {"batch", config->batch}, {"tables", config->tables.size()}, {"table_elements", elements}};
  return write_built_graph(app, arguments.build, *graph, facts);
}

void check_dlrm_flags(CommandParser app, const DlrmArguments& arguments) {
  if (!arguments.preset.empty()) return;
  for (const char* needed : {"--tables", "--bottom", "--top", "--batch"}) {
    if (app.option(needed).count() > 0) continue;
    bad_usage("build dlrm", "expected --preset, or --tables, --bottom, --top and --batch");
  }
}

void add_interaction(CommandParser app, DlrmArguments& arguments) {
  app.add_option_function<std::string>(
         "--interaction",
         [&arguments](const std::string& text) {
           arguments.changes.emplace_back([text](DlrmConfig& config) {
             config.interaction_dot = text == "dot";
             if (text != "dcnv2") config.cross.layers = 0;
             if (text == "dcnv2" && config.cross.layers == 0) config.cross.layers = kCrossLayers;
           });
         },
         "Dot products of all pairs, vectors side by side, or a low-rank cross network of those")
      .check(one_of({"dot", "cat", "dcnv2"}));
  const auto add_size = [&](const std::string& flag, std::int64_t DlrmConfig::LowRankCross::*member,
                            const std::string& help) {
    app.add_option_function<std::int64_t>(
           flag,
           [&arguments, member](std::int64_t value) {
             arguments.changes.emplace_back(
                 [member, value](DlrmConfig& config) { config.cross.*member = value; });
           },
           help)
        .type_name("N");
  };
  add_size("--cross-layers", &DlrmConfig::LowRankCross::layers, "Layers of the cross network (3)");
  add_size("--cross-rank", &DlrmConfig::LowRankCross::rank, "Rank of the cross network (512)");
}

void add_optimizers(CommandParser app, DlrmArguments& arguments) {
  using Optimizer = DlrmConfig::Optimizer;
  arguments.add_choice(app, "--optimizer", &DlrmConfig::optimizer,
                       {{"sgd", Optimizer::kSgd},
                        {"adagrad", Optimizer::kAdagrad},
                        {"rowwise_adagrad", Optimizer::kRowwiseAdagrad},
                        {"adam", Optimizer::kAdam}},
                       "Optimizer of tables and MLPs");
  add_optimizer_option(
      app, "--dense-optimizer",
      [&arguments](TrainingOptions::Optimizer optimizer) {
        arguments.changes.emplace_back(
            [optimizer](DlrmConfig& config) { config.dense_optimizer = optimizer; });
      },
      "Optimizer of the MLPs alone, where the tables are batched");
}

}  // namespace

Command build_dlrm_command(CommandParser parent) {
  auto arguments = std::make_shared<DlrmArguments>();
  const CommandParser dlrm =
      parent.add_subcommand("dlrm", "One training step of a DLRM on one GPU");
  arguments->add_preset(dlrm);
  dlrm.add_option("--tables", arguments->tables,
                  "Embedding tables: CSV with rows, dim, pooling, or JSON with the same keys")
      .type_name("FILE");
  arguments->add_widths(dlrm, "--bottom", &DlrmConfig::bottom_mlp,
                        "Bottom MLP, the dense features first");
  arguments->add_widths(dlrm, "--top", &DlrmConfig::top_mlp,
                        "Top MLP behind the interaction, the last width 1");
  arguments->add(dlrm, "--batch", &DlrmConfig::batch, "Samples per batch").type_name("B");
  add_optimizers(dlrm, *arguments);
  add_interaction(dlrm, *arguments);
  arguments->add_flag(dlrm, "--table-batched,!--no-table-batched", &DlrmConfig::table_batched,
                      "One fused op for all tables, or one op per table");
  arguments->add_flag(dlrm, "--sparse-gradients,!--no-sparse-gradients",
                      &DlrmConfig::sparse_gradients,
                      "Of tables that are not batched: one entry per lookup, or one per row");
  arguments->add_flag(dlrm, "--stacked-offsets,!--no-stacked-offsets", &DlrmConfig::stacked_offsets,
                      "Of tables that are not batched: offsets come in one tensor, or one each");
  arguments->add(dlrm, "--name", &DlrmConfig::name, "Name of the model in the graph");
  add_build_options_but_optimizer(dlrm, arguments->build);
  dlrm.callback([dlrm, arguments] { check_dlrm_flags(dlrm, *arguments); });
  return {dlrm, [dlrm, arguments] { return run_build_dlrm(dlrm, *arguments); }};
}

}  // namespace perfmodel::cli
