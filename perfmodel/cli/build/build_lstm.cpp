#include "perfmodel/graph/build_model.hpp"

#include <fmt/format.h>

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"
#include "recurrent_choices.hpp"

namespace perfmodel::cli {
namespace {

ModelFacts facts_of(const LstmConfig& config) {
  ModelFacts facts;
  facts.model = config.name;
  facts.lines = {{"batch", fmt::format("{} x {} steps", config.batch, config.steps)},
                 {"layers", fmt::format("{} x {} of {}, {}", config.layers, name_of(config.cell),
                                        config.hidden, name_of(config.form))}};
  facts.keys = {{"batch", config.batch}, {"steps", config.steps}};
  return facts;
}

}  // namespace

Command build_lstm_command(CommandParser parent) {
  auto arguments = std::make_shared<ConfigArguments<LstmConfig>>();
  CommandParser app =
      parent.add_subcommand("lstm", "One training step of a recurrent language model on one GPU");
  arguments->add_preset(app);
  arguments->add_choice(app, "--cell", &LstmConfig::cell, cell_choices(), "Kind of layer");
  arguments->add_choice(app, "--form", &LstmConfig::form, form_choices(),
                        "One library call, a fused cell per step, or a cell in single ops");
  arguments->add(app, "--vocabulary", &LstmConfig::vocabulary, "Words");
  arguments->add(app, "--embedding", &LstmConfig::embedding, "Width of a word vector");
  arguments->add(app, "--hidden", &LstmConfig::hidden, "Width of a layer");
  arguments->add(app, "--layers", &LstmConfig::layers, "Recurrent layers");
  arguments->add(app, "--dropout", &LstmConfig::dropout, "Behind the embedding and every layer");
  arguments->add(app, "--batch", &LstmConfig::batch, "Sequences per batch");
  arguments->add(app, "--steps", &LstmConfig::steps, "Words per sequence");
  arguments->add(app, "--name", &LstmConfig::name, "Name of the model");
  add_build_options(app, arguments->build);
  return {app, [app, arguments] {
            return write_model(app, *arguments, lstm_preset, build_lstm, facts_of);
          }};
}

}  // namespace perfmodel::cli
