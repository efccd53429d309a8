#include "perfmodel/graph/build_model.hpp"

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"
#include "image_facts.hpp"

namespace perfmodel::cli {

Command build_inception_command(CommandParser parent) {
  auto arguments = std::make_shared<ConfigArguments<InceptionConfig>>();
  CommandParser app =
      parent.add_subcommand("inception", "One training step of Inception-v3 on one GPU");
  arguments->add_preset(app);
  arguments->add(app, "--classes", &InceptionConfig::classes, "Classes");
  arguments->add(app, "--resolution", &InceptionConfig::resolution, "Height and width of an image");
  arguments->add(app, "--dropout", &InceptionConfig::dropout, "In front of the last layer");
  arguments->add_flag(app, "--auxiliary,!--no-auxiliary", &InceptionConfig::auxiliary,
                      "The second classifier and its loss");
  arguments->add(app, "--batch", &InceptionConfig::batch, "Samples per batch");
  arguments->add(app, "--name", &InceptionConfig::name, "Name of the model");
  add_build_options(app, arguments->build);
  return {app, [app, arguments] {
            return write_model(app, *arguments, inception_preset, build_inception,
                               image_facts<InceptionConfig>);
          }};
}

}  // namespace perfmodel::cli
