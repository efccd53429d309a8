#include "perfmodel/graph/build_model.hpp"

#include <fmt/format.h>

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"

namespace perfmodel::cli {
namespace {

ModelFacts facts_of(const MlpConfig& config) {
  ModelFacts facts;
  facts.model = config.name;
  facts.lines = {{"batch", fmt::format("{}", config.batch)},
                 {"widths", fmt::format("{}", fmt::join(config.widths, "-"))}};
  facts.keys = {{"batch", config.batch}, {"layers", config.widths.size() - 1}};
  return facts;
}

}  // namespace

Command build_mlp_command(CommandParser parent) {
  auto arguments = std::make_shared<ConfigArguments<MlpConfig>>();
  const CommandParser app =
      parent.add_subcommand("mlp", "One training step of linear layers on one GPU");
  arguments->add_preset(app);
  arguments->add_widths(app, "--widths", &MlpConfig::widths, "Features first, classes last");
  arguments->add_flag(app, "--relu-behind-last", &MlpConfig::relu_behind_last,
                      "ReLU behind the last layer too");
  arguments->add_flag(app, "--softmax", &MlpConfig::softmax, "Softmax in front of the loss");
  arguments->add(app, "--batch", &MlpConfig::batch, "Samples per batch");
  arguments->add(app, "--name", &MlpConfig::name, "Name of the model");
  add_build_options(app, arguments->build);
  return {app, [app, arguments] {
            return write_model(app, *arguments, mlp_preset, build_mlp, facts_of);
          }};
}

}  // namespace perfmodel::cli
