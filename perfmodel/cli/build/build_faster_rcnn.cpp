#include "perfmodel/graph/build_model.hpp"

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"
#include "image_facts.hpp"

namespace perfmodel::cli {

Command build_faster_rcnn_command(CommandParser parent) {
  auto arguments = std::make_shared<ConfigArguments<FasterRcnnConfig>>();
  const CommandParser app = parent.add_subcommand(
      "faster-rcnn", "One training step of a detector like Faster R-CNN on one GPU");
  arguments->add_preset(app);
  arguments->add(app, "--classes", &FasterRcnnConfig::classes, "Classes and background");
  arguments->add(app, "--resolution", &FasterRcnnConfig::resolution,
                 "Height and width of an image");
  arguments->add(app, "--anchors", &FasterRcnnConfig::anchors, "Anchors per place");
  arguments->add(app, "--candidates", &FasterRcnnConfig::candidates,
                 "Proposals per image in front of the suppression");
  arguments->add(app, "--kept", &FasterRcnnConfig::kept, "Proposals per image behind it");
  arguments->add(app, "--sampled", &FasterRcnnConfig::sampled, "Regions per image in the loss");
  arguments->add_flag(app, "--pyramid,!--no-pyramid", &FasterRcnnConfig::pyramid,
                      "Whether features are a pyramid of maps of all stages");
  arguments->add(app, "--batch", &FasterRcnnConfig::batch, "Samples per batch");
  arguments->add(app, "--name", &FasterRcnnConfig::name, "Name of the model");
  add_build_options(app, arguments->build);
  return {app, [app, arguments] {
            return write_model(app, *arguments, faster_rcnn_preset, build_faster_rcnn,
                               image_facts<FasterRcnnConfig>);
          }};
}

}  // namespace perfmodel::cli
