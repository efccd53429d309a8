#include "perfmodel/graph/build_transformers.hpp"

#include <memory>

#include "build_commands.hpp"
#include "terminal/command_parser.hpp"
#include "transformer_arguments.hpp"

namespace perfmodel::cli {
namespace {

Result<void> run_build_opt(CommandParser app, const TransformerArguments& arguments) {
  auto config = opt_preset(arguments.preset);
  if (!config) return Unexpected{config.error()};
  configure(arguments, *config);
  const auto graph = build_opt(*config);
  if (!graph) return Unexpected{graph.error()};
  return write_built_graph(app, arguments.build, *graph, transformer_facts(*config));
}

}  // namespace

Command build_opt_command(CommandParser parent) {
  auto arguments = std::make_shared<TransformerArguments>();
  const CommandParser app = parent.add_subcommand("opt", "One step of an OPT");
  add_transformer_options(app, *arguments, "opt-1.3b");
  return {app, [app, arguments] { return run_build_opt(app, *arguments); }};
}

}  // namespace perfmodel::cli
