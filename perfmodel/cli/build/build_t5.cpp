#include "perfmodel/graph/build_transformers.hpp"

#include <memory>
#include <optional>

#include "build_commands.hpp"
#include "terminal/command_parser.hpp"
#include "transformer_arguments.hpp"

namespace perfmodel::cli {
namespace {

struct T5Arguments : TransformerArguments {
  std::optional<std::int64_t> decoder_layers, target_sequence, head_width, experts, capacity;
  std::optional<bool> gated;
};

Result<void> run_build_t5(CommandParser app, const T5Arguments& arguments) {
  auto config = t5_preset(arguments.preset);
  if (!config) return Unexpected{config.error()};
  configure(arguments, *config);
  if (arguments.decoder_layers) config->decoder_layers = *arguments.decoder_layers;
  if (arguments.target_sequence) config->target_sequence = *arguments.target_sequence;
  if (arguments.head_width) config->head_width = *arguments.head_width;
  if (arguments.experts) config->experts = *arguments.experts;
  if (arguments.capacity) config->expert_capacity = *arguments.capacity;
  if (arguments.gated) config->gated = *arguments.gated;
  const auto graph = build_t5(*config);
  if (!graph) return Unexpected{graph.error()};
  return write_built_graph(app, arguments.build, *graph, transformer_facts(*config));
}

}  // namespace

Command build_t5_command(CommandParser parent) {
  auto arguments = std::make_shared<T5Arguments>();
  const CommandParser app = parent.add_subcommand("t5", "One step of a T5 or Switch Transformer");
  add_transformer_options(app, *arguments, "t5-base");
  const auto size = [app](const char* flag, std::optional<std::int64_t>& value, const char* help) {
    app.add_option(flag, value, help).type_name("N");
  };
  size("--decoder-layers", arguments->decoder_layers, "Layers of the decoder");
  size("--target-sequence", arguments->target_sequence, "Tokens per sample of the decoder");
  size("--head-width", arguments->head_width, "Width of one head");
  size("--experts", arguments->experts, "Experts of every second layer; 0: none");
  size("--expert-capacity", arguments->capacity, "Tokens of a sample that one expert takes");
  app.add_flag_function(
      "--gated,!--no-gated", [arguments](std::int64_t count) { arguments->gated = count > 0; },
      "Gated feed-forward layers and an output layer of its own");
  return {app, [app, arguments] { return run_build_t5(app, *arguments); }};
}

}  // namespace perfmodel::cli
