#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "cli/shared/arguments.hpp"
#include "cli/shared/command.hpp"
#include "cli/shared/read_files.hpp"
#include "perfmodel/graph/captured.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"
#include "rewrite_flags.hpp"
#include "rewrites/model_batch.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

struct RewriteArguments {
  std::string graph, output;
  std::vector<NamedRewrite> rewrites;
  ReadOptions reading;
  bool json = false;
};

std::string command_line(const RewriteArguments& arguments) {
  std::string text = "perfpredict rewrite " + file_name(arguments.graph);
  for (const NamedRewrite& rewrite : arguments.rewrites) text += " " + rewrite.name;
  return text;
}

struct Step {
  std::string rewrite;
  GraphDifference difference;
};

// No GPU is asked for here that could tell the vendor.
Result<void> check_captured(const ExecutionGraph& graph, const RewriteArguments& arguments) {
  if (arguments.rewrites.empty() || !is_to_retarget(graph)) return {};
  const std::string& first = arguments.rewrites.front().name;
  if (first.starts_with("--retarget ")) return {};
  return decline(
      "expected --retarget nvidia (or amd) as the first rewrite of a captured graph, found " +
          first,
      arguments.graph);
}

// Applies the rewrites in turn and notes what each one changes. If --batch asks for another batch,
// a known model is built again first, and the first rewrite's changes include that.
Result<ExecutionGraph> apply(ExecutionGraph graph, const RewriteArguments& arguments,
                             std::vector<Step>& steps) {
  PERFMODEL_TRY_TO(check_captured(graph, arguments));
  auto built = model_with_batch(graph, asked_batch(arguments.rewrites));
  if (built && !*built) return *built;
  for (const NamedRewrite& rewrite : arguments.rewrites) {
    auto made = apply_rewrites(built ? **built : graph, {&rewrite, 1});
    if (!made) {
      made.error().file = arguments.graph;
      return made;
    }
    steps.push_back({rewrite.name, graph_difference(graph, *made)});
    graph = std::move(*made);
    built.reset();
  }
  return graph;
}

Json counts(const std::vector<std::pair<std::string, std::size_t>>& names) {
  Json json = Json::object();
  for (const auto& [name, count] : names) json[name] = count;
  return json;
}

Json to_json(const RewriteArguments& arguments, const ExecutionGraph& graph,
             const std::vector<Step>& steps, const std::vector<std::string>& warnings) {
  Json json = document(schemas::kRewrite);
  json.update({{"source", file_name(arguments.graph)},
               {"graph", file_name(arguments.output)},
               {"built", graph.built},
               {"nodes", graph.nodes.size()},
               {"top_level_ops", top_level_ops(graph).size()},
               {"command", command_line(arguments)},
               {"rewrites", Json::array()},
               {"warnings", warnings}});
  for (const Step& step : steps) {
    json["rewrites"].push_back({{"rewrite", step.rewrite},
                                {"nodes_changed", step.difference.nodes_changed},
                                {"gone", counts(step.difference.gone)},
                                {"added", counts(step.difference.added)}});
  }
  return json;
}

std::string to_lines(const RewriteArguments& arguments, const ExecutionGraph& graph,
                     const std::vector<Step>& steps, const std::vector<std::string>& warnings) {
  TextList list;
  list.row("graph", arguments.output);
  for (const Step& step : steps) list.row(step.rewrite, to_string(step.difference));
  list.row("size", fmt::format("{}, {}", counted(graph.nodes.size(), "node"),
                               counted(top_level_ops(graph).size(), "top-level op")));
  std::string text = "\n" + list.text();
  for (const std::string& warning : warnings) text += wrapped(warning, "  warning: ", 4);
  return text;
}

Result<void> run_rewrite(const RewriteArguments& arguments) {
  PERFMODEL_TRY(programs, read_programs({arguments.graph}, arguments.reading));
  ExecutionGraph* const source = &programs->front().graph;
  std::vector<Step> steps;
  std::vector<std::string> warnings = source->warnings;
  PERFMODEL_TRY(graph, apply(std::move(*source), arguments, steps));
  std::ranges::copy_if(graph->warnings, std::back_inserter(warnings), [&](const auto& warning) {
    return std::ranges::find(warnings, warning) == warnings.end();
  });
  if (arguments.output == "-") {
    return print(execution_graph_json(*graph, {.generator = command_line(arguments)}));
  }
  PERFMODEL_TRY_TO(
      write_execution_graph(*graph, arguments.output, {.generator = command_line(arguments)}));
  if (arguments.json) return print_document(to_json(arguments, *graph, steps, warnings));
  return print_report(to_lines(arguments, *graph, steps, warnings));
}

}  // namespace

Command rewrite_command(CommandParser parent) {
  auto arguments = std::make_shared<RewriteArguments>();
  const CommandParser rewrite = parent.add_subcommand(
      "rewrite", "Change a graph: sizes, what it holds, how it would have been run");
  rewrite.add_argument("graph GRAPH", arguments->graph, "Execution graph to start from");
  add_rewrite_options(rewrite, arguments->rewrites);
  rewrite
      .add_option("-o,--output GRAPH", arguments->output,
                  "Graph to write (.json or .json.gz; - for standard output, without a summary)")
      .required();
  add_reading(rewrite, arguments->reading);
  rewrite.add_flag("--json", arguments->json, "Print a summary as one JSON document");
  rewrite.footer("Rewrites are applied in the order of the flags, which may be repeated.");
  return {rewrite, [arguments] { return run_rewrite(*arguments); }};
}

}  // namespace perfmodel::cli
