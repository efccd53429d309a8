#include "perfmodel/graph/build_mlp.hpp"

#include <fmt/format.h>

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"

namespace perfmodel::cli {
namespace {

Result<void> execute(const CLI::App& app, const ConfigArguments<MlpConfig>& arguments) {
  const auto config = arguments.configure(mlp_preset);
  if (!config) return Unexpected{config.error()};
  const auto graph = build_mlp(*config);
  if (!graph) return Unexpected{graph.error()};
  ModelFacts facts;
  facts.model = config->name;
  facts.lines = {{"batch", fmt::format("{}", config->batch)},
                 {"widths", fmt::format("{}", fmt::join(config->widths, "-"))}};
  facts.keys = {{"batch", config->batch}, {"layers", config->widths.size() - 1}};
  return write_built_graph(app, arguments.build, *graph, facts);
}

}  // namespace

Command build_mlp_command(CLI::App& parent) {
  auto arguments = std::make_shared<ConfigArguments<MlpConfig>>();
  CLI::App* app = parent.add_subcommand("mlp", "One training step of linear layers on one GPU");
  arguments->add_preset(*app);
  arguments->add_widths(*app, "--widths", &MlpConfig::widths, "Features first, classes last");
  arguments->add_flag(*app, "--relu-behind-last", &MlpConfig::relu_behind_last,
                      "ReLU behind the last layer too");
  arguments->add_flag(*app, "--softmax", &MlpConfig::softmax, "Softmax in front of the loss");
  arguments->add(*app, "--batch", &MlpConfig::batch, "Samples per batch");
  arguments->add(*app, "--name", &MlpConfig::name, "Name of the model");
  add_build_options(*app, arguments->build);
  return {app, [app, arguments] { return execute(*app, *arguments); }};
}

}  // namespace perfmodel::cli
