#include "perfmodel/graph/build_model.hpp"

#include <fmt/format.h>

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"
#include "recurrent_choices.hpp"

namespace perfmodel::cli {
namespace {

ModelFacts facts_of(const Deepspeech2Config& config) {
  ModelFacts facts;
  facts.model = config.name;
  facts.lines = {
      {"batch", fmt::format("{} x {} frames, {} characters", config.batch, config.frames,
                            config.target_steps)},
      {"convolutions", fmt::format("{}, {} steps of {} are left", config.convolutions.size(),
                                   output_steps(config), recurrent_input(config))},
      {"layers", fmt::format("{} x {} of {} in both directions", config.layers,
                             name_of(config.cell), config.hidden)}};
  facts.keys = {
      {"batch", config.batch}, {"frames", config.frames}, {"target_steps", config.target_steps}};
  return facts;
}

}  // namespace

Command build_deepspeech2_command(CommandParser parent) {
  using Config = Deepspeech2Config;
  auto arguments = std::make_shared<ConfigArguments<Config>>();
  CommandParser app =
      parent.add_subcommand("deepspeech2", "One training step of Deep Speech 2 on one GPU");
  arguments->add_preset(app);
  arguments->add_choice(app, "--cell", &Config::cell, cell_choices(), "Kind of layer");
  arguments->add(app, "--frequencies", &Config::frequencies, "Frequencies per frame");
  arguments->add(app, "--hidden", &Config::hidden, "Width of a layer");
  arguments->add(app, "--layers", &Config::layers, "Recurrent layers");
  arguments->add(app, "--characters", &Config::characters, "Characters, the blank included");
  arguments->add(app, "--batch", &Config::batch, "Samples per batch");
  arguments->add(app, "--frames", &Config::frames, "Frames per sample");
  arguments->add(app, "--target-steps", &Config::target_steps, "Characters per transcript");
  arguments->add(app, "--name", &Config::name, "Name of the model");
  add_build_options(app, arguments->build);
  return {app, [app, arguments] {
            return write_model(app, *arguments, deepspeech2_preset, build_deepspeech2, facts_of);
          }};
}

}  // namespace perfmodel::cli
