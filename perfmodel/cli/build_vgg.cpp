#include "perfmodel/graph/build_vgg.hpp"

#include <fmt/format.h>

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"

namespace perfmodel::cli {
namespace {

Result<void> execute(const CLI::App& app, const ConfigArguments<VggConfig>& arguments) {
  const auto config = arguments.configure(vgg_preset);
  if (!config) return Unexpected{config.error()};
  const auto graph = build_vgg(*config);
  if (!graph) return Unexpected{graph.error()};
  ModelFacts facts;
  facts.model = config->name;
  facts.lines = {{"batch", fmt::format("{} images of {} x {}", config->batch, config->resolution,
                                       config->resolution)}};
  facts.keys = {{"batch", config->batch}, {"resolution", config->resolution}};
  return write_built_graph(app, arguments.build, *graph, facts);
}

}  // namespace

Command build_vgg_command(CLI::App& parent) {
  auto arguments = std::make_shared<ConfigArguments<VggConfig>>();
  CLI::App* app = parent.add_subcommand("vgg", "One training step of VGG or AlexNet on one GPU");
  arguments->add_preset(*app);
  arguments->add(*app, "--classes", &VggConfig::classes, "Classes");
  arguments->add(*app, "--resolution", &VggConfig::resolution, "Height and width of an image");
  arguments->add(*app, "--hidden", &VggConfig::hidden, "Width of the linear layers");
  arguments->add(*app, "--dropout", &VggConfig::dropout, "Between the linear layers");
  arguments->add_flag(*app, "--batch-norm,!--no-batch-norm", &VggConfig::batch_norm,
                      "Batch norm behind every convolution");
  arguments->add(*app, "--batch", &VggConfig::batch, "Samples per batch");
  arguments->add(*app, "--name", &VggConfig::name, "Name of the model");
  add_build_options(*app, arguments->build);
  return {app, [app, arguments] { return execute(*app, *arguments); }};
}

}  // namespace perfmodel::cli
