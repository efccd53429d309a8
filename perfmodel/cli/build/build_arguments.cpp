#include "build_arguments.hpp"

#include <fmt/format.h>

#include "cli/rewrite/rewrite_flags.hpp"
#include "cli/shared/arguments.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "rewrites/rewrite_input.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

/// "2.94 PFLOP"
std::string flop_text(double flop) {
  if (flop >= 1e15) return fmt::format("{:.4g} PFLOP", flop / 1e15);
  if (flop >= 1e12) return fmt::format("{:.4g} TFLOP", flop / 1e12);
  return fmt::format("{:.4g} GFLOP", flop / 1e9);
}

// The command line that was parsed, for the head of the graph: "perfpredict build bert --batch 8".
// Files without folders, no output, options in the order of `--help`.
std::string build_command_line(CommandParser app) {
  std::string text = "perfpredict build " + app.name();
  for (const Option option : app.options()) {
    if (option.count() == 0) continue;
    const std::string name = option.long_names().front();
    if (name == "output" || name == "json") continue;
    const bool file = option.type_name() == "FILE";
    for (const std::string& value : option.values()) {
      if (option.is_flag()) {
        text += value == "false" || value.starts_with('-') ? " --no-" + name : " --" + name;
      } else {
        text += " --" + name + " " + (file ? file_name(value) : value);
      }
    }
  }
  return text;
}

// At the root of the commands, if a caller wants their graph.
const GraphTaker* graph_taker(CommandParser app) {
  return dynamic_cast<const GraphTaker*>(&app.root());
}

}  // namespace

void add_output_options(CommandParser app, BuildArguments& arguments) {
  app.add_option("-o,--output GRAPH", arguments.output,
                 "Graph to write (.json or .json.gz; - for standard output, without a summary)")
      .required();
  app.add_flag("--json", arguments.json, "Print a summary as one JSON document");
  add_rewrite_options(app, arguments.rewrites, RewriteFlags::kForBuild);
}

Result<void> write_built_graph(CommandParser app, const BuildArguments& arguments,
                               const ExecutionGraph& built, const std::string& model,
                               const ModelFacts& facts) {
  if (arguments.json && arguments.output == "-") {
    return decline(
        "--json: expected a file for the graph (-o FILE), found standard output, which cannot hold "
        "two documents");
  }
  PERFMODEL_TRY(rewritten, apply_rewrites(built, arguments.rewrites));
  if (const GraphTaker* taker = graph_taker(app)) {
    taker->take(std::move(*rewritten));
    return {};
  }
  const ExecutionGraph& graph = *rewritten;
  const std::string command = build_command_line(app);
  if (arguments.output == "-") return print(execution_graph_json(graph, {.generator = command}));
  PERFMODEL_TRY_TO(write_execution_graph(graph, arguments.output, {.generator = command}));
  const ModelSize size = model_size(graph);
  const std::size_t ops = top_level_ops(graph).size();
  if (arguments.json) {
    Json json = document(schemas::kBuild);
    json.update({{"graph", file_name(arguments.output)},
                 {"built", true},
                 {"model", model},
                 {"parameters", size.parameters},
                 {"matrix_flop", size.matrix_flop},
                 {"nodes", graph.nodes.size()},
                 {"rewrites", rewrite_names(arguments.rewrites)},
                 {"top_level_ops", ops},
                 {"command", command}});
    json.update(facts.keys);
    return print_document(json);
  }
  TextList list;
  list.row("graph", arguments.output + " (built)");
  list.row("model", model);
  for (const auto& [label, text] : facts.lines) list.row(label, text);
  list.row("parameters", grouped(size.parameters));
  list.fact("rewritten by", rewrite_line(arguments.rewrites));
  list.row("products", flop_text(size.matrix_flop) + " in matrix products and convolutions");
  list.row("size", fmt::format("{}, {}", counted(graph.nodes.size(), "node"),
                               counted(ops, "top-level op")));
  return print_report("\n" + list.text());
}

}  // namespace perfmodel::cli
