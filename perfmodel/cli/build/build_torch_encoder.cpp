#include "perfmodel/graph/build_transformers.hpp"

#include <memory>

#include "build_commands.hpp"
#include "terminal/command_parser.hpp"
#include "transformer_arguments.hpp"

namespace perfmodel::cli {
namespace {

Result<void> run_build_torch_encoder(CommandParser app, const TransformerArguments& arguments) {
  TransformerConfig config;
  config.name = "torch-encoder";
  config.layers = 6;
  config.hidden = 512;
  config.heads = 8;
  config.feed_forward = 2048;
  config.vocabulary = 10000;
  configure(arguments, config);
  const auto graph = build_torch_encoder(config);
  if (!graph) return Unexpected{graph.error()};
  return write_built_graph(app, arguments.build, *graph, transformer_facts(config));
}

}  // namespace

Command build_torch_encoder_command(CommandParser parent) {
  auto arguments = std::make_shared<TransformerArguments>();
  const CommandParser app =
      parent.add_subcommand("torch-encoder", "One step of nn.TransformerEncoderLayers");
  add_transformer_options(app, *arguments, "");
  return {app, [app, arguments] { return run_build_torch_encoder(app, *arguments); }};
}

}  // namespace perfmodel::cli
