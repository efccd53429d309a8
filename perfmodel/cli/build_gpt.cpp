#include "perfmodel/graph/build_gpt.hpp"

#include <CLI/CLI.hpp>
#include <memory>

#include "build_commands.hpp"
#include "transformer_arguments.hpp"

namespace perfmodel::cli {
namespace {

Result<void> execute(const CLI::App& app, const TransformerArguments& arguments) {
  auto config = gpt_preset(arguments.preset);
  if (!config) return Unexpected{config.error()};
  configure(arguments, *config);
  const auto graph = build_gpt(*config);
  if (!graph) return Unexpected{graph.error()};
  return write_built_graph(app, arguments.build, *graph, transformer_facts(*config));
}

}  // namespace

Command build_gpt_command(CLI::App& parent) {
  auto arguments = std::make_shared<TransformerArguments>();
  CLI::App* app = parent.add_subcommand("gpt", "One step of a GPT-2 or GPT-3");
  add_transformer_options(*app, *arguments, "gpt2");
  return {app, [app, arguments] { return execute(*app, *arguments); }};
}

}  // namespace perfmodel::cli
