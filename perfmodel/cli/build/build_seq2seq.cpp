#include "perfmodel/graph/build_model.hpp"

#include <fmt/format.h>

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"
#include "recurrent_choices.hpp"

namespace perfmodel::cli {
namespace {

ModelFacts facts_of(const Seq2seqConfig& config) {
  ModelFacts facts;
  facts.model = config.name;
  facts.lines = {
      {"batch", fmt::format("{} x {} source and {} target steps", config.batch, config.source_steps,
                            config.target_steps)},
      {"encoder", fmt::format("{} x {} of {}, {}", config.encoder_layers, name_of(config.cell),
                              config.hidden, name_of(config.encoder_form))},
      {"decoder", fmt::format("{} x {} of {}, {}", config.decoder_layers, name_of(config.cell),
                              config.hidden, name_of(config.decoder_form))}};
  facts.keys = {{"batch", config.batch},
                {"source_steps", config.source_steps},
                {"target_steps", config.target_steps}};
  return facts;
}

}  // namespace

Command build_seq2seq_command(CommandParser parent) {
  using Config = Seq2seqConfig;
  auto arguments = std::make_shared<ConfigArguments<Config>>();
  const CommandParser app = parent.add_subcommand(
      "seq2seq", "One training step of a recurrent translation model with attention on one GPU");
  arguments->add_preset(app);
  arguments->add_choice(app, "--cell", &Config::cell, cell_choices(), "Kind of layer");
  arguments->add_choice(app, "--encoder-form", &Config::encoder_form, form_choices(),
                        "One library call, a fused cell per step, or a cell in single ops");
  arguments->add_choice(app, "--decoder-form", &Config::decoder_form,
                        {{"cells", RecurrentForm::kCells}, {"unfused", RecurrentForm::kUnfused}},
                        "A fused cell per step, or a cell in single ops");
  app.add_flag_function(
      "--bidirectional,!--no-bidirectional",
      [arguments](std::int64_t count) {
        arguments->changes.push_back([count](Config& c) { c.bidirectional = count > 0; });
      },
      "Whether the first layer of the encoder reads the source both ways");
  arguments->add(app, "--source-vocabulary", &Config::source_vocabulary, "Words of the source");
  arguments->add(app, "--target-vocabulary", &Config::target_vocabulary, "Words of the target");
  arguments->add(app, "--embedding", &Config::embedding, "Width of a word vector");
  arguments->add(app, "--hidden", &Config::hidden, "Width of a layer");
  arguments->add(app, "--attention", &Config::attention, "Width of the attention's hidden layer");
  arguments->add(app, "--encoder-layers", &Config::encoder_layers, "Layers of the encoder");
  arguments->add(app, "--decoder-layers", &Config::decoder_layers, "Layers of the decoder");
  arguments->add(app, "--dropout", &Config::dropout, "Behind embeddings and between layers");
  arguments->add(app, "--batch", &Config::batch, "Sentences per batch");
  arguments->add(app, "--source-steps", &Config::source_steps, "Words per source sentence");
  arguments->add(app, "--target-steps", &Config::target_steps, "Words per target sentence");
  arguments->add(app, "--name", &Config::name, "Name of the model");
  add_build_options(app, arguments->build);
  return {app, [app, arguments] {
            return write_model(app, *arguments, seq2seq_preset, build_seq2seq, facts_of);
          }};
}

}  // namespace perfmodel::cli
