#include "perfmodel/graph/build_model.hpp"

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"
#include "image_facts.hpp"

namespace perfmodel::cli {

Command build_resnet_command(CommandParser parent) {
  auto arguments = std::make_shared<ConfigArguments<ResnetConfig>>();
  CommandParser app =
      parent.add_subcommand("resnet", "One training step of a residual network on one GPU");
  arguments->add_preset(app);
  arguments->add(app, "--classes", &ResnetConfig::classes, "Classes");
  arguments->add(app, "--resolution", &ResnetConfig::resolution, "Height and width of an image");
  arguments->add(app, "--groups", &ResnetConfig::groups,
                 "Groups of the 3x3 convolutions in bottlenecks");
  arguments->add(app, "--width-per-group", &ResnetConfig::width_per_group,
                 "Channels of a group in the first stage");
  arguments->add_flag(app, "--soft-targets", &ResnetConfig::soft_targets,
                      "Targets are probabilities of all classes");
  arguments->add(app, "--batch", &ResnetConfig::batch, "Samples per batch");
  arguments->add(app, "--name", &ResnetConfig::name, "Name of the model");
  add_build_options(app, arguments->build);
  return {app, [app, arguments] {
            return write_model(app, *arguments, resnet_preset, build_resnet,
                               image_facts<ResnetConfig>);
          }};
}

}  // namespace perfmodel::cli
