#include "perfmodel/graph/build_model.hpp"

#include <fmt/format.h>

#include <memory>

#include "build_commands.hpp"
#include "config_arguments.hpp"

namespace perfmodel::cli {
namespace {

ModelFacts facts_of(const WganConfig& config) {
  ModelFacts facts;
  facts.model = config.name;
  const bool critic = config.step == WganConfig::Step::kCritic;
  facts.lines = {
      {"batch", fmt::format("{} images of {} x {}", config.batch, config.image, config.image)},
      {"step", critic ? "critic" : "generator"}};
  facts.keys = {{"batch", config.batch}, {"image", config.image}};
  return facts;
}

}  // namespace

Command build_wgan_command(CommandParser parent) {
  auto arguments = std::make_shared<ConfigArguments<WganConfig>>();
  CommandParser app =
      parent.add_subcommand("wgan", "A step of the critic or the generator of a WGAN on one GPU");
  arguments->add_preset(app);
  arguments->add_choice(
      app, "--step", &WganConfig::step,
      {{"critic", WganConfig::Step::kCritic}, {"generator", WganConfig::Step::kGenerator}},
      "Which of the two learns");
  arguments->add(app, "--latent", &WganConfig::latent, "Width of the noise");
  arguments->add(app, "--features", &WganConfig::features, "Channels next to the image");
  arguments->add(app, "--image", &WganConfig::image, "Height and width of an image");
  arguments->add(app, "--clip", &WganConfig::clip, "Largest weight of the critic");
  arguments->add(app, "--batch", &WganConfig::batch, "Samples per batch");
  arguments->add(app, "--name", &WganConfig::name, "Name of the model");
  add_build_options(app, arguments->build);
  return {app, [app, arguments] {
            return write_model(app, *arguments, wgan_preset, build_wgan, facts_of);
          }};
}

}  // namespace perfmodel::cli
