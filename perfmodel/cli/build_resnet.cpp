#include "perfmodel/graph/build_resnet.hpp"

#include <fmt/format.h>

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"

namespace perfmodel::cli {
namespace {

Result<void> execute(const CLI::App& app, const ConfigArguments<ResnetConfig>& arguments) {
  const auto config = arguments.configure(resnet_preset);
  if (!config) return Unexpected{config.error()};
  const auto graph = build_resnet(*config);
  if (!graph) return Unexpected{graph.error()};
  ModelFacts facts;
  facts.model = config->name;
  facts.lines = {{"batch", fmt::format("{} images of {} x {}", config->batch, config->resolution,
                                       config->resolution)}};
  facts.keys = {{"batch", config->batch}, {"resolution", config->resolution}};
  return write_built_graph(app, arguments.build, *graph, facts);
}

}  // namespace

Command build_resnet_command(CLI::App& parent) {
  auto arguments = std::make_shared<ConfigArguments<ResnetConfig>>();
  CLI::App* app =
      parent.add_subcommand("resnet", "One training step of a residual network on one GPU");
  arguments->add_preset(*app);
  arguments->add(*app, "--classes", &ResnetConfig::classes, "Classes");
  arguments->add(*app, "--resolution", &ResnetConfig::resolution, "Height and width of an image");
  arguments->add(*app, "--groups", &ResnetConfig::groups,
                 "Groups of the 3x3 convolutions in bottlenecks");
  arguments->add(*app, "--width-per-group", &ResnetConfig::width_per_group,
                 "Channels of a group in the first stage");
  arguments->add_flag(*app, "--soft-targets", &ResnetConfig::soft_targets,
                      "Targets are probabilities of all classes");
  arguments->add(*app, "--batch", &ResnetConfig::batch, "Samples per batch");
  arguments->add(*app, "--name", &ResnetConfig::name, "Name of the model");
  add_build_options(*app, arguments->build);
  return {app, [app, arguments] { return execute(*app, *arguments); }};
}

}  // namespace perfmodel::cli
