#include <fmt/format.h>

#include "base/each_name.hpp"
#include "model_family.hpp"

namespace perfmodel {
namespace {

// Square images. `Config` has the members `name`, `batch` and `resolution`.
template <class Config>
ModelFacts image_facts(const Config& config) {
  return {.lines = {{"batch", fmt::format("{} images of {} x {}", config.batch, config.resolution,
                                          config.resolution)}},
          .keys = {{"batch", config.batch}, {"resolution", config.resolution}}};
}

ModelFacts wgan_facts(const WganConfig& config) {
  const bool critic = config.step == WganConfig::Step::kCritic;
  return {.lines = {{"batch",
                     fmt::format("{} images of {} x {}", config.batch, config.image, config.image)},
                    {"step", critic ? "critic" : "generator"}},
          .keys = {{"batch", config.batch}, {"image", config.image}}};
}

ModelFacts a3c_facts(const A3cConfig& config) {
  return {.lines = {{"batch",
                     fmt::format("{} environments, {} frames each", config.batch, config.rollout)},
                    {"frames", fmt::format("{} of {} x {}", config.frames, config.resolution,
                                           config.resolution)},
                    {"actions", fmt::format("{}", config.actions)}},
          .keys = {PERFMODEL_VALUES(config, batch, rollout, resolution, actions)}};
}

constexpr Named<WganConfig::Step> kWganSteps[] = {{"critic", WganConfig::Step::kCritic},
                                                  {"generator", WganConfig::Step::kGenerator}};

}  // namespace

const ModelFamily<A3cConfig>& a3c_family() {
  using Config = A3cConfig;
  static const ModelFamily<Config> family = {
      "a3c",
      "One update of an actor-critic agent that plays Atari games (A3C)",
      a3c_preset,
      build_a3c,
      a3c_facts,
      {{"batch", &Config::batch, "Environments that are played together"},
       {"rollout", &Config::rollout, "Frames of each that one update learns from"},
       {"frames", &Config::frames, "Latest frames that the agent sees"},
       {"resolution", &Config::resolution, "Height and width of a frame"},
       {"actions", &Config::actions, "Actions of the game"},
       {"channels", &Config::channels, "Filters of the two convolutions"},
       {"hidden", &Config::hidden, "Width of the linear layer"},
       {"lstm", &Config::lstm, "Whether an LSTM cell is in front of the heads", "", true},
       {"name", &Config::name, "Name of the model"}}};
  return family;
}

const ModelFamily<FasterRcnnConfig>& faster_rcnn_family() {
  using Config = FasterRcnnConfig;
  static const ModelFamily<Config> family = {
      "faster-rcnn",
      "One training step of a detector like Faster R-CNN on one GPU",
      faster_rcnn_preset,
      build_faster_rcnn,
      image_facts<Config>,
      {{"classes", &Config::classes, "Classes and background"},
       {"resolution", &Config::resolution, "Height and width of an image"},
       {"anchors", &Config::anchors, "Anchors per place"},
       {"candidates", &Config::candidates, "Proposals per image in front of the suppression"},
       {"kept", &Config::kept, "Proposals per image after it"},
       {"sampled", &Config::sampled, "Regions per image in the loss"},
       {"pyramid", &Config::pyramid, "Whether features are a pyramid of maps of all stages", "",
        true},
       {"batch", &Config::batch, "Samples per batch"},
       {"name", &Config::name, "Name of the model"}}};
  return family;
}

const ModelFamily<InceptionConfig>& inception_family() {
  using Config = InceptionConfig;
  static const ModelFamily<Config> family = {
      "inception",
      "One training step of Inception-v3 on one GPU",
      inception_preset,
      build_inception,
      image_facts<Config>,
      {{"classes", &Config::classes, "Classes"},
       {"resolution", &Config::resolution, "Height and width of an image"},
       {"dropout", &Config::dropout, "In front of the last layer"},
       {"auxiliary", &Config::auxiliary, "The second classifier and its loss", "", true},
       {"batch", &Config::batch, "Samples per batch"},
       {"name", &Config::name, "Name of the model"}}};
  return family;
}

const ModelFamily<ResnetConfig>& resnet_family() {
  using Config = ResnetConfig;
  static const ModelFamily<Config> family = {
      "resnet",
      "One training step of a residual network on one GPU",
      resnet_preset,
      build_resnet,
      image_facts<Config>,
      {{"classes", &Config::classes, "Classes"},
       {"resolution", &Config::resolution, "Height and width of an image"},
       {"groups", &Config::groups, "Groups of the 3x3 convolutions in bottlenecks"},
       {"width_per_group", &Config::width_per_group, "Channels of a group in the first stage"},
       {"soft_targets", &Config::soft_targets, "Targets are probabilities of all classes"},
       {"batch", &Config::batch, "Samples per batch"},
       {"name", &Config::name, "Name of the model"}}};
  return family;
}

const ModelFamily<VggConfig>& vgg_family() {
  using Config = VggConfig;
  static const ModelFamily<Config> family = {
      "vgg",
      "One training step of VGG or AlexNet on one GPU",
      vgg_preset,
      build_vgg,
      image_facts<Config>,
      {{"classes", &Config::classes, "Classes"},
       {"resolution", &Config::resolution, "Height and width of an image"},
       {"hidden", &Config::hidden, "Width of the linear layers"},
       {"dropout", &Config::dropout, "Between the linear layers"},
       {"batch_norm", &Config::batch_norm, "Batch norm after every convolution", "", true},
       {"batch", &Config::batch, "Samples per batch"},
       {"name", &Config::name, "Name of the model"}},
      "vgg16"};
  return family;
}

const ModelFamily<WganConfig>& wgan_family() {
  using Config = WganConfig;
  static const ModelFamily<Config> family = {
      "wgan",
      "A step of the critic or the generator of a WGAN on one GPU",
      wgan_preset,
      build_wgan,
      wgan_facts,
      {{"step", choice_of<&Config::step, kWganSteps>(), "Which of the two learns"},
       {"latent", &Config::latent, "Width of the noise"},
       {"features", &Config::features, "Channels next to the image"},
       {"image", &Config::image, "Height and width of an image"},
       {"clip", &Config::clip, "Largest weight of the critic"},
       {"batch", &Config::batch, "Samples per batch"},
       {"name", &Config::name, "Name of the model"}}};
  return family;
}

}  // namespace perfmodel
