#include <fmt/format.h>

#include <memory>
#include <optional>

#include "build_commands.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "terminal/command_parser.hpp"
#include "transformer_arguments.hpp"

namespace perfmodel::cli {
namespace {

struct EncoderDecoderArguments : TransformerArguments {
  std::optional<std::int64_t> decoder_layers, target_sequence;
  std::optional<double> inner_dropout, label_smoothing;
};

ModelFacts facts_of(const EncoderDecoderConfig& config) {
  ModelFacts facts = transformer_facts(config);
  facts.lines.front().second = fmt::format("{} sentences of {} source and {} target tokens",
                                           config.batch, config.sequence, config.target_sequence);
  facts.keys["target_sequence"] = config.target_sequence;
  facts.keys["decoder_layers"] = config.decoder_layers;
  return facts;
}

Result<void> run_build_transformer(CommandParser app, const EncoderDecoderArguments& arguments) {
  auto config = transformer_preset(arguments.preset);
  if (!config) return Unexpected{config.error()};
  configure(arguments, *config);
  if (arguments.decoder_layers) config->decoder_layers = *arguments.decoder_layers;
  if (arguments.target_sequence) config->target_sequence = *arguments.target_sequence;
  if (arguments.inner_dropout) config->inner_dropout = *arguments.inner_dropout;
  if (arguments.label_smoothing) config->label_smoothing = *arguments.label_smoothing;
  const auto graph = build_transformer(*config);
  if (!graph) return Unexpected{graph.error()};
  return write_built_graph(app, arguments.build, *graph, facts_of(*config));
}

}  // namespace

Command build_transformer_command(CommandParser parent) {
  auto arguments = std::make_shared<EncoderDecoderArguments>();
  const CommandParser app = parent.add_subcommand(
      "transformer", "One step of the Transformer that translates (encoder and decoder)");
  add_transformer_options(app, *arguments, "transformer-base");
  arguments->build.training.optimizer = TrainingOptions::Optimizer::kAdam;
  app.add_option("--decoder-layers", arguments->decoder_layers, "Layers of the decoder")
      .type_name("N");
  app.add_option("--target-sequence", arguments->target_sequence,
                 "Tokens per sentence of the decoder")
      .type_name("S");
  app.add_option("--inner-dropout", arguments->inner_dropout,
                 "Dropout of attention weights and inside of feed-forward layers")
      .type_name("P");
  app.add_option("--label-smoothing", arguments->label_smoothing,
                 "Share of the loss that all words get; 0: none")
      .type_name("E");
  return {app, [app, arguments] { return run_build_transformer(app, *arguments); }};
}

}  // namespace perfmodel::cli
