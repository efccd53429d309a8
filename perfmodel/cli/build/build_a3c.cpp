#include <fmt/format.h>

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"
#include "perfmodel/graph/build_model.hpp"

namespace perfmodel::cli {
namespace {

ModelFacts facts_of(const A3cConfig& config) {
  ModelFacts facts;
  facts.model = config.name;
  facts.lines = {
      {"batch", fmt::format("{} environments, {} frames each", config.batch, config.rollout)},
      {"frames", fmt::format("{} of {} x {}", config.frames, config.resolution, config.resolution)},
      {"actions", fmt::format("{}", config.actions)}};
  facts.keys = {{"batch", config.batch},
                {"rollout", config.rollout},
                {"resolution", config.resolution},
                {"actions", config.actions}};
  return facts;
}

}  // namespace

Command build_a3c_command(CommandParser parent) {
  using Config = A3cConfig;
  auto arguments = std::make_shared<ConfigArguments<Config>>();
  const CommandParser app = parent.add_subcommand(
      "a3c", "One update of an actor-critic agent that plays Atari games (A3C)");
  arguments->build.training.optimizer = TrainingOptions::Optimizer::kAdam;
  arguments->add_preset(app);
  arguments->add(app, "--batch", &Config::batch, "Environments that are played together");
  arguments->add(app, "--rollout", &Config::rollout, "Frames of each that one update learns from");
  arguments->add(app, "--frames", &Config::frames, "Latest frames that the agent sees");
  arguments->add(app, "--resolution", &Config::resolution, "Height and width of a frame");
  arguments->add(app, "--actions", &Config::actions, "Actions of the game");
  arguments->add_widths(app, "--channels", &Config::channels, "Filters of the two convolutions");
  arguments->add(app, "--hidden", &Config::hidden, "Width of the linear layer");
  arguments->add_flag(app, "--lstm,!--no-lstm", &Config::lstm,
                      "Whether an LSTM cell stands in front of the heads");
  arguments->add(app, "--name", &Config::name, "Name of the model");
  add_build_options(app, arguments->build);
  return {app, [app, arguments] {
            return write_model(app, *arguments, a3c_preset, build_a3c, facts_of);
          }};
}

}  // namespace perfmodel::cli
