#include "perfmodel/graph/build_faster_rcnn.hpp"

#include <fmt/format.h>

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"

namespace perfmodel::cli {
namespace {

Result<void> execute(const CLI::App& app, const ConfigArguments<FasterRcnnConfig>& arguments) {
  const auto config = arguments.configure(faster_rcnn_preset);
  if (!config) return Unexpected{config.error()};
  const auto graph = build_faster_rcnn(*config);
  if (!graph) return Unexpected{graph.error()};
  ModelFacts facts;
  facts.model = config->name;
  facts.lines = {{"batch", fmt::format("{} images of {} x {}", config->batch, config->resolution,
                                       config->resolution)}};
  facts.keys = {{"batch", config->batch}, {"resolution", config->resolution}};
  return write_built_graph(app, arguments.build, *graph, facts);
}

}  // namespace

Command build_faster_rcnn_command(CLI::App& parent) {
  auto arguments = std::make_shared<ConfigArguments<FasterRcnnConfig>>();
  CLI::App* app = parent.add_subcommand(
      "faster-rcnn", "One training step of a detector like Faster R-CNN on one GPU");
  arguments->add_preset(*app);
  arguments->add(*app, "--classes", &FasterRcnnConfig::classes, "Classes and background");
  arguments->add(*app, "--resolution", &FasterRcnnConfig::resolution,
                 "Height and width of an image");
  arguments->add(*app, "--anchors", &FasterRcnnConfig::anchors, "Anchors per place");
  arguments->add(*app, "--candidates", &FasterRcnnConfig::candidates,
                 "Proposals per image in front of the suppression");
  arguments->add(*app, "--kept", &FasterRcnnConfig::kept, "Proposals per image behind it");
  arguments->add(*app, "--sampled", &FasterRcnnConfig::sampled, "Regions per image in the loss");
  arguments->add(*app, "--batch", &FasterRcnnConfig::batch, "Samples per batch");
  arguments->add(*app, "--name", &FasterRcnnConfig::name, "Name of the model");
  add_build_options(*app, arguments->build);
  return {app, [app, arguments] { return execute(*app, *arguments); }};
}

}  // namespace perfmodel::cli
