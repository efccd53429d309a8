#include "perfmodel/graph/build_model.hpp"

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"
#include "image_facts.hpp"

namespace perfmodel::cli {

Command build_vgg_command(CommandParser parent) {
  auto arguments = std::make_shared<ConfigArguments<VggConfig>>();
  const CommandParser app =
      parent.add_subcommand("vgg", "One training step of VGG or AlexNet on one GPU");
  arguments->add_preset(app, "vgg16");
  arguments->add(app, "--classes", &VggConfig::classes, "Classes");
  arguments->add(app, "--resolution", &VggConfig::resolution, "Height and width of an image");
  arguments->add(app, "--hidden", &VggConfig::hidden, "Width of the linear layers");
  arguments->add(app, "--dropout", &VggConfig::dropout, "Between the linear layers");
  arguments->add_flag(app, "--batch-norm,!--no-batch-norm", &VggConfig::batch_norm,
                      "Batch norm behind every convolution");
  arguments->add(app, "--batch", &VggConfig::batch, "Samples per batch");
  arguments->add(app, "--name", &VggConfig::name, "Name of the model");
  add_build_options(app, arguments->build);
  return {app, [app, arguments] {
            return write_model(app, *arguments, vgg_preset, build_vgg, image_facts<VggConfig>);
          }};
}

}  // namespace perfmodel::cli
