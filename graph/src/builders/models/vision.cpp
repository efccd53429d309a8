#include <utility>

#include "perfmodel/graph/build_model.hpp"
#include "settings.hpp"

namespace perfmodel {

// Lists of layers are lists of lists of numbers.
static Item item_of(const std::vector<VggConfig::Layer>& layers) {
  Item::List all;
  for (const VggConfig::Layer& layer : layers) {
    all.emplace_back(Shape{layer.channels, layer.kernel, layer.stride, layer.padding});
  }
  return all;
}
static void take_item(const Item& item, std::vector<VggConfig::Layer>& layers) {
  for (const Item& one : item.list()) {
    Shape numbers;
    take_item(one, numbers);
    layers.push_back({numbers[0], numbers[1], numbers[2], numbers[3]});
  }
}

template <class Visit>
void visit_settings(MlpConfig& config, Visit visit) {
  visit("widths", config.widths);
  visit("batch", config.batch);
  visit("relu_behind_last", config.relu_behind_last);
  visit("softmax", config.softmax);
}

template <class Visit>
void visit_settings(ResnetConfig& config, Visit visit) {
  visit("block", config.block, Words{"basic", "bottleneck"});
  visit("blocks", config.blocks);
  visit("groups", config.groups);
  visit("width_per_group", config.width_per_group);
  visit("classes", config.classes);
  visit("batch", config.batch);
  visit("resolution", config.resolution);
  visit("soft_targets", config.soft_targets);
}

template <class Visit>
void visit_settings(VggConfig& config, Visit visit) {
  visit("features", config.features);
  visit("batch_norm", config.batch_norm);
  visit("pooled", config.pooled);
  visit("hidden", config.hidden);
  visit("dropout", config.dropout);
  visit("dropout_in_front", config.dropout_in_front);
  visit("classes", config.classes);
  visit("batch", config.batch);
  visit("resolution", config.resolution);
}

template <class Visit>
void visit_settings(InceptionConfig& config, Visit visit) {
  visit("classes", config.classes);
  visit("batch", config.batch);
  visit("resolution", config.resolution);
  visit("auxiliary", config.auxiliary);
  visit("dropout", config.dropout);
}

template <class Visit>
void visit_settings(FasterRcnnConfig& config, Visit visit) {
  visit("batch", config.batch);
  visit("resolution", config.resolution);
  visit("classes", config.classes);
  visit("anchors", config.anchors);
  visit("candidates", config.candidates);
  visit("kept", config.kept);
  visit("sampled", config.sampled);
  visit("sampled_anchors", config.sampled_anchors);
  visit("hidden", config.hidden);
  visit("pyramid", config.pyramid);
}

template <class Visit>
void visit_settings(WganConfig& config, Visit visit) {
  visit("step", config.step, Words{"critic", "generator"});
  visit("batch", config.batch);
  visit("latent", config.latent);
  visit("features", config.features);
  visit("image", config.image);
  visit("colours", config.colours);
  visit("clip", config.clip);
}

// Height and width of what two convolutions without padding leave of a frame.
static std::int64_t map_size(const A3cConfig& config) {
  std::int64_t size = config.resolution;
  for (const auto& [kernel, stride] : {std::pair(8, 4), std::pair(4, 2)}) {
    size = size < kernel ? 0 : (size - kernel) / stride + 1;
  }
  return size;
}

template <class Visit>
void visit_settings(A3cConfig& config, Visit visit) {
  std::int64_t size = map_size(config);
  visit("map_size", size);
  visit("batch", config.batch);
  visit("rollout", config.rollout);
  visit("frames", config.frames);
  visit("resolution", config.resolution);
  visit("actions", config.actions);
  visit("channels", config.channels);
  visit("hidden", config.hidden);
  visit("lstm", config.lstm);
}

Result<MlpConfig> mlp_preset(std::string_view name) {
  return preset_of<MlpConfig>("mlp", "an MLP preset", name);
}
Result<ExecutionGraph> build_mlp(const MlpConfig& config) { return build_module("mlp", config); }

Result<ResnetConfig> resnet_preset(std::string_view name) {
  return preset_of<ResnetConfig>("resnet", "a ResNet preset", name);
}
Result<ExecutionGraph> build_resnet(const ResnetConfig& config) {
  return build_module("resnet", config);
}

Result<VggConfig> vgg_preset(std::string_view name) {
  return preset_of<VggConfig>("vgg", "a VGG preset", name);
}
Result<ExecutionGraph> build_vgg(const VggConfig& config) { return build_module("vgg", config); }

Result<InceptionConfig> inception_preset(std::string_view name) {
  return preset_of<InceptionConfig>("inception", "an Inception preset", name);
}
Result<ExecutionGraph> build_inception(const InceptionConfig& config) {
  return build_module("inception", config);
}

Result<FasterRcnnConfig> faster_rcnn_preset(std::string_view name) {
  return preset_of<FasterRcnnConfig>("faster_rcnn", "a Faster R-CNN preset", name);
}
Result<ExecutionGraph> build_faster_rcnn(const FasterRcnnConfig& config) {
  return build_module("faster_rcnn", config);
}

Result<WganConfig> wgan_preset(std::string_view name) {
  return preset_of<WganConfig>("wgan", "a WGAN preset", name);
}
Result<ExecutionGraph> build_wgan(const WganConfig& config) { return build_module("wgan", config); }

Result<A3cConfig> a3c_preset(std::string_view name) {
  return preset_of<A3cConfig>("a3c", "an A3C preset", name);
}
Result<ExecutionGraph> build_a3c(const A3cConfig& config) { return build_module("a3c", config); }

std::int64_t parameter_count(const A3cConfig& config) {
  const std::int64_t c1 = config.channels[0], c2 = config.channels[1], h = config.hidden;
  const std::int64_t map = map_size(config);
  const std::int64_t filters = (64 * config.frames + 1) * c1 + (16 * c1 + 1) * c2;
  const std::int64_t cell =
      config.lstm ? recurrent_parameters(RecurrentCell::kLstm, h, h) : std::int64_t{0};
  return filters + (c2 * map * map + 1) * h + cell + (h + 1) * (config.actions + 1);
}

}  // namespace perfmodel
