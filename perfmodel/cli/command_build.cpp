#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "arguments.hpp"
#include "command.hpp"
#include "output.hpp"
#include "perfmodel/graph/build_dlrm.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "text_table.hpp"

namespace perfmodel::cli {
namespace {

// What is not given stays as the preset has it.
struct DlrmArguments {
  std::string preset, tables, output;
  std::optional<std::vector<std::int64_t>> bottom, top;
  std::optional<std::int64_t> batch;
  std::optional<std::string> optimizer, interaction, name;
  std::optional<bool> table_batched, pinned_input;
  bool json = false;
};

std::string dashed(const std::vector<std::int64_t>& widths) {
  return fmt::format("{}", fmt::join(widths, "-"));
}

// For the head of the graph: file names without folders.
std::string command_line(const DlrmArguments& a) {
  std::string text = "perfpredict build dlrm";
  if (!a.preset.empty()) text += " --preset " + a.preset;
  if (!a.tables.empty()) text += " --tables " + file_name(a.tables);
  if (a.bottom) text += " --bottom " + dashed(*a.bottom);
  if (a.top) text += " --top " + dashed(*a.top);
  if (a.batch) text += fmt::format(" --batch {}", *a.batch);
  if (a.optimizer) text += " --optimizer " + *a.optimizer;
  if (a.interaction) text += " --interaction " + *a.interaction;
  if (a.table_batched) text += *a.table_batched ? " --table-batched" : " --no-table-batched";
  if (a.pinned_input) text += *a.pinned_input ? " --pinned-input" : " --no-pinned-input";
  if (a.name) text += " --name " + *a.name;
  return text;
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
                           : DlrmConfig::Optimizer::kSgd;
  }
  if (arguments.interaction) config.interaction_dot = *arguments.interaction == "dot";
  if (arguments.table_batched) config.table_batched = *arguments.table_batched;
  if (arguments.pinned_input) config.pinned_input = *arguments.pinned_input;
  if (arguments.name) config.name = *arguments.name;
  return config;
}

Result<void> execute(const DlrmArguments& arguments) {
  const auto config = configure(arguments);
  if (!config) return Unexpected{config.error()};
  const auto graph = build_dlrm(*config);
  if (!graph) return Unexpected{graph.error()};
  const auto written =
      write_execution_graph(*graph, arguments.output, {.generator = command_line(arguments)});
  if (!written) return written;

  double elements = 0;
  for (const EmbeddingTable& table : config->tables) {
    elements += static_cast<double>(table.num_rows) * static_cast<double>(table.dim);
  }
  const std::size_t ops = top_level_ops(*graph).size();
  if (arguments.json) {
    return print(to_text({{"schema", "perfmodel-build"},
                          {"version", 1},
                          {"graph", file_name(arguments.output)},
                          {"built", true},
                          {"model", config->name},
                          {"batch", config->batch},
                          {"tables", config->tables.size()},
                          {"table_elements", elements},
                          {"nodes", graph->nodes.size()},
                          {"top_level_ops", ops},
                          {"command", command_line(arguments)}}));
  }
  TextList list;
  list.row("graph", arguments.output + " (built)");
  list.row("model", fmt::format("{}, batch {}", config->name,
                                grouped(static_cast<std::size_t>(config->batch))));
  list.row("bottom MLP", dashed(config->bottom_mlp));
  list.row("top MLP", fmt::format("{}-{}", interaction_width(*config), dashed(config->top_mlp)));
  list.row("tables",
           fmt::format("{}, {:.2f} GB in all", grouped(config->tables.size()), elements * 4 / 1e9));
  list.row("size", fmt::format("{}, {}", counted(graph->nodes.size(), "node"),
                               counted(ops, "top-level op")));
  return print("\n" + list.text());
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

Command build_command(CLI::App& parent) {
  auto arguments = std::make_shared<DlrmArguments>();
  CLI::App* app = parent.add_subcommand("build", "Make an execution graph without PyTorch");
  app->require_subcommand(1);
  CLI::App* dlrm = app->add_subcommand("dlrm", "One training step of a DLRM on one GPU");
  dlrm->add_option("--preset", arguments->preset, "Start from a known model; flags override it")
      ->check(CLI::IsMember({"default", "mlperf", "ddp"}));
  dlrm->add_option("--tables", arguments->tables,
                   "Embedding tables: CSV with rows, dim, pooling, or JSON with the same keys")
      ->type_name("FILE");
  add_widths(*dlrm, "--bottom", arguments->bottom, "Bottom MLP, the dense features first");
  add_widths(*dlrm, "--top", arguments->top, "Top MLP behind the interaction, the last width 1");
  dlrm->add_option("--batch", arguments->batch, "Samples per batch")->type_name("B");
  dlrm->add_option("--optimizer", arguments->optimizer, "Optimizer of tables and MLPs")
      ->check(CLI::IsMember({"sgd", "rowwise_adagrad"}));
  dlrm->add_option("--interaction", arguments->interaction,
                   "Dot products of all pairs, or vectors side by side")
      ->check(CLI::IsMember({"dot", "cat"}));
  dlrm->add_flag_function(
      "--table-batched,!--no-table-batched",
      [arguments](std::int64_t count) { arguments->table_batched = count > 0; },
      "One fused op for all tables, or one op per table");
  dlrm->add_flag_function(
      "--pinned-input,!--no-pinned-input",
      [arguments](std::int64_t count) { arguments->pinned_input = count > 0; },
      "Whether the batch lies in pinned host memory");
  dlrm->add_option("--name", arguments->name, "Name of the model in the graph");
  dlrm->add_option("-o,--output", arguments->output, "Graph to write (.json or .json.gz)")
      ->required()
      ->type_name("GRAPH");
  dlrm->add_flag("--json", arguments->json, "Print a summary as one JSON document");
  dlrm->callback([arguments] { check(*arguments); });
  return {dlrm, [arguments] { return execute(*arguments); }};
}

}  // namespace perfmodel::cli
