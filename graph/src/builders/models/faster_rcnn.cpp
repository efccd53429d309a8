#include <fmt/format.h>

#include <utility>
#include <vector>

#include "builders/emit/ops.hpp"
#include "config_checks.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "resnet_layers.hpp"

namespace perfmodel {
namespace {

constexpr double kOverlap = 0.7, kBeta = 1.0 / 9;
constexpr std::int64_t kLastStride = 32;  // stride of the last stage

ResnetConfig backbone() { return *resnet_preset("resnet50"); }

constexpr std::int64_t kPyramidChannels = 256;
constexpr std::size_t kPyramidStages = 4;

// Stride of each map in the image, largest map first; proposals come from all maps, regions are
// read in all except the one after the last stage.
std::vector<std::int64_t> strides(const FasterRcnnConfig& config) {
  if (config.pyramid) return {4, 8, 16, kLastStride, 2 * kLastStride};
  return {kLastStride};
}

std::int64_t map_size(const FasterRcnnConfig& config, std::int64_t stride) {
  return (config.resolution + stride - 1) / stride;
}

std::int64_t anchors_per_image(const FasterRcnnConfig& config) {
  std::int64_t count = 0;
  for (const std::int64_t stride : strides(config)) {
    count += map_size(config, stride) * map_size(config, stride) * config.anchors;
  }
  return count;
}

// Maps that regions are read in.
std::int64_t maps_of_regions(const FasterRcnnConfig& config) {
  return config.pyramid ? static_cast<std::int64_t>(kPyramidStages) : 1;
}

Result<void> check(const FasterRcnnConfig& config) {
  const auto good = all_good(
      {expect_at_least("batch", 1, config.batch),
       expect_at_least("resolution", kLastStride + 1, config.resolution),
       expect_at_least("classes", 2, config.classes), expect_at_least("anchors", 1, config.anchors),
       expect_at_least("kept", 1, config.kept), expect_at_least("sampled", 1, config.sampled),
       expect_at_least("sampled anchors", 1, config.sampled_anchors),
       expect_at_least("hidden", 1, config.hidden),
       expect_countable("image", {config.batch, 64, config.resolution, config.resolution}),
       expect_countable("anchors", {config.batch, anchors_per_image(config), 4}),
       expect_countable("regions", {config.batch, config.sampled, 2048, 49}),
       expect_countable("boxes", {config.batch, config.sampled, config.classes, 4}),
       expect_countable("hidden", {config.hidden, config.hidden})});
  if (!good) return good;
  if (config.candidates < config.kept || config.candidates > anchors_per_image(config)) {
    return fail(ErrorCode::kImpossible,
                fmt::format("candidates: expected at least the {} that are kept and at most the "
                            "{} anchors of an image, found {}",
                            config.kept, anchors_per_image(config), config.candidates));
  }
  if (config.sampled % maps_of_regions(config) != 0) {
    return fail(ErrorCode::kImpossible,
                fmt::format("sampled: expected a multiple of the {} maps of a pyramid, found {}",
                            kPyramidStages, config.sampled));
  }
  if (config.sampled > config.kept) {
    return fail(ErrorCode::kImpossible,
                fmt::format("sampled: expected at most the {} regions that are kept, found {}",
                            config.kept, config.sampled));
  }
  if (!config.training.pytorch.on_gpu()) {
    return fail(ErrorCode::kImpossible, "device: expected gpu, found cpu");
  }
  return {};
}

class FasterRcnnBuilder : public ModelBuilder<FasterRcnnConfig> {
 public:
  explicit FasterRcnnBuilder(const FasterRcnnConfig& config)
      : ModelBuilder(config), trunk_(step_, backbone()) {
    if (config.pyramid) make_pyramid();
    const std::int64_t channels =
        config.pyramid ? kPyramidChannels : ResnetTrunk::channels(backbone()).back();
    rpn_ = make_conv(step_, channels, channels, {3, 3}, {.padding = {1, 1}}, true);
    objectness_ = make_conv(step_, channels, config.anchors, {1, 1}, {}, true);
    offsets_ = make_conv(step_, channels, 4 * config.anchors, {1, 1}, {}, true);
    first_ = make_linear_layer(step_, channels * 49, config.hidden);
    second_ = make_linear_layer(step_, config.hidden, config.hidden);
    classes_ = make_linear_layer(step_, config.hidden, config.classes);
    boxes_ = make_linear_layer(step_, config.hidden, 4 * config.classes);
  }

  ExecutionGraph build() {
    TrainingStep::Parts parts;
    parts.inputs = [this] { copy_batch(); };
    parts.forward = [this] { return forward(); };
    return step_.run(parts);
  }

 private:
  void make_pyramid() {
    for (const std::int64_t in : ResnetTrunk::channels(backbone())) {
      inner_.push_back(make_conv(step_, in, kPyramidChannels, {1, 1}, {}, true));
      outer_.push_back(
          make_conv(step_, kPyramidChannels, kPyramidChannels, {3, 3}, {.padding = {1, 1}}, true));
    }
  }

  void copy_batch() {
    const std::int64_t picked = config_.batch * config_.sampled_anchors;
    const std::int64_t regions = config_.batch * config_.sampled;
    const std::int64_t size = config_.resolution;
    image_ = step_.input(DType::kFloat32, {config_.batch, 3, size, size});
    anchors_ = step_.input(DType::kFloat32, {config_.batch * anchors_per_image(config_), 4});
    picked_anchors_ = step_.input(DType::kInt64, {picked});
    is_object_ = step_.input(DType::kFloat32, {picked});
    anchor_targets_ = step_.input(DType::kFloat32, {picked, 4});
    picked_regions_ = step_.input(DType::kInt64, {config_.sampled});
    region_classes_ = step_.input(DType::kInt64, {regions});
    picked_boxes_ = step_.input(DType::kInt64, {regions});
    box_targets_ = step_.input(DType::kFloat32, {regions, 4});
    if (!config_.pyramid) return;
    for (std::size_t i = 0; i < kPyramidStages; ++i) {
      regions_of_map_.push_back(
          step_.input(DType::kInt64, {regions / static_cast<std::int64_t>(kPyramidStages)}));
    }
  }

  TensorRef forward() {
    const std::vector<TensorRef> maps = features();
    std::vector<TensorRef> all_scores, all_offsets;
    for (const TensorRef map : maps) {
      const TensorRef x = relu_in_place(tape_, apply(step_, rpn_, map));
      all_scores.push_back(per_anchor(apply(step_, objectness_, x), 1));
      all_offsets.push_back(per_anchor(apply(step_, offsets_, x), 4));
    }
    const TensorRef scores = joined(all_scores, {-1});
    const TensorRef offsets = joined(all_offsets, {-1, 4});
    const TensorRef proposal_loss = proposals_loss(scores, offsets);
    const TensorRef regions = propose(scores, offsets);
    return add(tape_, regions_loss(maps, regions), proposal_loss);
  }

  // Joins the parts of all maps, as `shape`.
  TensorRef joined(const std::vector<TensorRef>& parts, const Shape& shape) {
    return config_.pyramid ? reshape(tape_, cat(tape_, parts, 1), shape) : parts.front();
  }

  // Maps for proposals, largest first.
  std::vector<TensorRef> features() {
    if (!config_.pyramid) return trunk_.stages(image_, 1);
    const std::vector<TensorRef> stages = trunk_.stages(image_, kPyramidStages);
    std::vector<TensorRef> maps(kPyramidStages);
    TensorRef above;
    for (std::size_t i = kPyramidStages; i-- > 0;) {
      TensorRef x = apply(step_, inner_[i], stages[i]);
      if (above.exists()) {
        const Shape& shape = graph_.shape(x);
        x = add(tape_, x, upsample_nearest2d(tape_, above, {shape[2], shape[3]}));
      }
      maps[i] = apply(step_, outer_[i], x);
      above = x;
    }
    maps.push_back(max_pool2d(tape_, maps.back(), {.kernel = 1, .stride = 2, .padding = 0}));
    return maps;
  }

  // [B, A * width, H, W] -> [B * H * W * A] or, for more than one number, [..., width]; of one of
  // several maps [B, H * W * A] and [B, H * W * A, width].
  TensorRef per_anchor(TensorRef x, std::int64_t width) {
    const Shape from = graph_.shape(x);
    Shape shape = config_.pyramid ? Shape{config_.batch, -1} : Shape{-1};
    if (width == 1) return reshape(tape_, permute(tape_, x, {0, 2, 3, 1}), shape);
    shape.push_back(width);
    const TensorRef split =
        view(tape_, x, {config_.batch, config_.anchors, width, from[2], from[3]});
    return reshape(tape_, permute(tape_, split, {0, 3, 4, 1, 2}), shape);
  }

  TensorRef proposals_loss(TensorRef scores, TensorRef offsets) {
    const TensorRef objects = binary_cross_entropy_with_scores(
        tape_, pick_rows(tape_, scores, picked_anchors_), is_object_);
    const TensorRef boxes =
        smooth_l1_sum(tape_, pick_rows(tape_, offsets, picked_anchors_), anchor_targets_, kBeta);
    return add(tape_, objects, div(tape_, boxes, static_cast<int>(graph_.numel(is_object_))));
  }

  // Without gradient: the best anchors of every image, moved by their offsets, of overlapping ones
  // the best; the regions of all images with the number of their image in front.
  TensorRef propose(TensorRef scores, TensorRef offsets) {
    const std::int64_t batch = config_.batch, count = anchors_per_image(config_);
    const TensorRef moved = decode(offsets);
    const TensorRef all = view(graph_, moved, {batch, count, 4});
    const TensorRef rated = view(graph_, detach(graph_, scores), {batch, count});
    const Shape best_shape = {batch, config_.candidates};
    const TensorRef best = graph_.new_tensor(DType::kInt64, best_shape);
    graph_.leaf_op("aten::topk", {rated, config_.candidates, 1, true, true},
                   {graph_.new_tensor(DType::kFloat32, best_shape), best});
    std::vector<TensorRef> regions;
    for (std::int64_t i = 0; i < batch; ++i) {
      const TensorRef rows = select(graph_, best, 0, i);
      const TensorRef boxes = pick_rows(graph_, select(graph_, all, 0, i), rows);
      const TensorRef values = pick_rows(graph_, select(graph_, rated, 0, i), rows);
      const TensorRef kept = non_maximum_suppression(graph_, boxes, values, kOverlap, config_.kept);
      const TensorRef chosen = pick_rows(graph_, pick_rows(graph_, boxes, kept), picked_regions_);
      regions.push_back(with_image_number(chosen));
    }
    return cat(graph_, regions, 0);
  }

  // Centre and size of an anchor, moved and scaled, then clipped to the image.
  TensorRef decode(TensorRef offsets) {
    const TensorRef scaled = binary(graph_, "aten::mul.Tensor", detach(graph_, offsets), anchors_);
    const TensorRef moved = add(graph_, scaled, anchors_);
    const TensorRef grown = unary(graph_, "aten::exp", moved);
    return graph_.leaf("aten::clamp", {grown, 0, config_.resolution}, like(graph_, grown));
  }

  TensorRef with_image_number(TensorRef boxes) {
    const std::int64_t count = graph_.shape(boxes)[0];
    const TensorRef number = graph_.new_tensor(DType::kFloat32, {count, 1});
    graph_.begin_op("aten::full_like", {boxes, 0, kNone, kNone, kNone, kNone, kNone});
    fill(graph_, number, 0);
    graph_.end_op({number});
    return cat(graph_, {number, boxes}, 1);
  }

  // [R, C, 7, 7] of the maps that the regions are read in.
  TensorRef aligned(const std::vector<TensorRef>& maps, TensorRef regions) {
    constexpr RoiAlign kAlign = {.size = 7, .samples = 2, .scale = 1.0 / kLastStride};
    if (!config_.pyramid) return roi_align(tape_, maps.front(), regions, kAlign);
    std::vector<TensorRef> parts;
    for (std::size_t i = 0; i < kPyramidStages; ++i) {
      RoiAlign align = kAlign;
      align.scale = 1.0 / static_cast<double>(strides(config_)[i]);
      parts.push_back(
          roi_align(tape_, maps[i], pick_rows(graph_, regions, regions_of_map_[i]), align));
    }
    return cat(tape_, parts, 0);
  }

  TensorRef regions_loss(const std::vector<TensorRef>& maps, TensorRef regions) {
    TensorRef x = flatten(tape_, aligned(maps, regions), 1);
    x = relu(tape_, apply(step_, first_, x));
    x = relu(tape_, apply(step_, second_, x));
    const TensorRef classes = apply(step_, classes_, x);
    const TensorRef boxes = reshape(tape_, apply(step_, boxes_, x), {-1, 4});
    const TensorRef loss = cross_entropy(tape_, classes, region_classes_);
    const TensorRef off =
        smooth_l1_sum(tape_, pick_rows(tape_, boxes, picked_boxes_), box_targets_, kBeta);
    return add(tape_, loss, div(tape_, off, static_cast<int>(graph_.numel(region_classes_))));
  }

  ResnetTrunk trunk_;
  ConvLayer rpn_, objectness_, offsets_;
  LinearLayer first_, second_, classes_, boxes_;
  TensorRef image_, anchors_, picked_anchors_, is_object_, anchor_targets_;
  TensorRef picked_regions_, region_classes_, picked_boxes_, box_targets_;
  std::vector<ConvLayer> inner_, outer_;   // for a pyramid, by stage
  std::vector<TensorRef> regions_of_map_;  // the same
};

}  // namespace

Result<FasterRcnnConfig> faster_rcnn_preset(std::string_view name) {
  FasterRcnnConfig config;
  if (name == "faster_rcnn") return config;
  if (name != "fasterrcnn_resnet50_fpn") {
    return unknown_preset("a Faster R-CNN preset", name,
                          {"faster_rcnn", "fasterrcnn_resnet50_fpn"});
  }
  config.name = name;
  config.pyramid = true;
  config.anchors = 3;
  config.candidates = 8382;  // 2,000 of each of three maps and all of the last two, of 800 x 800
  return config;
}

Result<ExecutionGraph> build_faster_rcnn(const FasterRcnnConfig& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  return FasterRcnnBuilder(config).build();
}

}  // namespace perfmodel
