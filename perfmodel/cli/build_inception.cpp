#include "perfmodel/graph/build_inception.hpp"

#include <fmt/format.h>

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"

namespace perfmodel::cli {
namespace {

Result<void> execute(const CLI::App& app, const ConfigArguments<InceptionConfig>& arguments) {
  const auto config = arguments.configure(inception_preset);
  if (!config) return Unexpected{config.error()};
  const auto graph = build_inception(*config);
  if (!graph) return Unexpected{graph.error()};
  ModelFacts facts;
  facts.model = config->name;
  facts.lines = {{"batch", fmt::format("{} images of {} x {}", config->batch, config->resolution,
                                       config->resolution)}};
  facts.keys = {{"batch", config->batch}, {"resolution", config->resolution}};
  return write_built_graph(app, arguments.build, *graph, facts);
}

}  // namespace

Command build_inception_command(CLI::App& parent) {
  auto arguments = std::make_shared<ConfigArguments<InceptionConfig>>();
  CLI::App* app =
      parent.add_subcommand("inception", "One training step of Inception-v3 on one GPU");
  arguments->add_preset(*app);
  arguments->add(*app, "--classes", &InceptionConfig::classes, "Classes");
  arguments->add(*app, "--resolution", &InceptionConfig::resolution,
                 "Height and width of an image");
  arguments->add(*app, "--dropout", &InceptionConfig::dropout, "In front of the last layer");
  arguments->add_flag(*app, "--auxiliary,!--no-auxiliary", &InceptionConfig::auxiliary,
                      "The second classifier and its loss");
  arguments->add(*app, "--batch", &InceptionConfig::batch, "Samples per batch");
  arguments->add(*app, "--name", &InceptionConfig::name, "Name of the model");
  add_build_options(*app, arguments->build);
  return {app, [app, arguments] { return execute(*app, *arguments); }};
}

}  // namespace perfmodel::cli
