#include <fmt/format.h>

#include <utility>

#include "builders/emit/ops.hpp"
#include "config_checks.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "vision_layers.hpp"

namespace perfmodel {
namespace {

constexpr double kEpsilon = 0.001;
constexpr double kAuxiliaryWeight = 0.4;
constexpr Pool2d kHalving = {.kernel = 3, .stride = 2, .padding = 0};
constexpr Pool2d kSmoothing = {.kernel = 3, .stride = 1, .padding = 1};
constexpr Pool2d kAuxiliaryPool = {.kernel = 5, .stride = 3, .padding = 0};

struct Filter {
  std::int64_t out, height, width;
  std::int64_t stride = 1;
  bool padded = true;  // so that stride 1 keeps the size
};

// Consecutive filters, at most one pooling before them; the last two may be parallel.
struct Branch {
  enum class Pool { kNone, kAverage, kMaximum } pool = Pool::kNone;
  std::vector<Filter> filters;
  std::vector<Filter> fork = {};
};
using Mixed = std::vector<Branch>;

Mixed block_a(std::int64_t pooled) {
  return {{.filters = {{64, 1, 1}}},
          {.filters = {{48, 1, 1}, {64, 5, 5}}},
          {.filters = {{64, 1, 1}, {96, 3, 3}, {96, 3, 3}}},
          {.pool = Branch::Pool::kAverage, .filters = {{pooled, 1, 1}}}};
}

Mixed block_b() {
  return {{.filters = {{384, 3, 3, 2, false}}},
          {.filters = {{64, 1, 1}, {96, 3, 3}, {96, 3, 3, 2, false}}},
          {.pool = Branch::Pool::kMaximum, .filters = {}}};
}

Mixed block_c(std::int64_t inner) {
  return {{.filters = {{192, 1, 1}}},
          {.filters = {{inner, 1, 1}, {inner, 1, 7}, {192, 7, 1}}},
          {.filters = {{inner, 1, 1}, {inner, 7, 1}, {inner, 1, 7}, {inner, 7, 1}, {192, 1, 7}}},
          {.pool = Branch::Pool::kAverage, .filters = {{192, 1, 1}}}};
}

Mixed block_d() {
  return {{.filters = {{192, 1, 1}, {320, 3, 3, 2, false}}},
          {.filters = {{192, 1, 1}, {192, 1, 7}, {192, 7, 1}, {192, 3, 3, 2, false}}},
          {.pool = Branch::Pool::kMaximum, .filters = {}}};
}

Mixed block_e() {
  return {{.filters = {{320, 1, 1}}},
          {.filters = {{384, 1, 1}}, .fork = {{384, 1, 3}, {384, 3, 1}}},
          {.filters = {{448, 1, 1}, {384, 3, 3}}, .fork = {{384, 1, 3}, {384, 3, 1}}},
          {.pool = Branch::Pool::kAverage, .filters = {{192, 1, 1}}}};
}

class InceptionBuilder : public ModelBuilder<InceptionConfig> {
 public:
  explicit InceptionBuilder(const InceptionConfig& config) : ModelBuilder(config) {
    make_parameters();
  }

  ExecutionGraph build() {
    TrainingStep::Parts parts;
    const std::int64_t size = config_.resolution;
    parts.inputs = [this, size] {
      image_ = step_.input(DType::kFloat32, {config_.batch, 3, size, size});
      target_ = step_.input(DType::kInt64, {config_.batch});
    };
    parts.forward = [this] { return forward(); };
    parts.loss = [this](TensorRef scores) { return loss(scores); };
    return step_.run(parts);
  }

 private:
  struct Layers {
    Branch::Pool pool;
    std::vector<ConvNorm> filters, fork;
  };
  using MixedLayers = std::vector<Layers>;

  ConvNorm make(const Filter& filter) {
    Conv2d conv = {.stride = {filter.stride, filter.stride}};
    if (filter.padded) conv.padding = {(filter.height - 1) / 2, (filter.width - 1) / 2};
    const Shape kernel = {filter.height, filter.width};
    ConvNorm made = make_conv_norm(step_, channels_, filter.out, kernel, conv, kEpsilon);
    channels_ = filter.out;
    return made;
  }

  // Branches start from the same input; their outputs are concatenated.
  MixedLayers make(const Mixed& mixed) {
    MixedLayers made;
    const std::int64_t in = channels_;
    std::int64_t out = 0;
    for (const Branch& branch : mixed) {
      channels_ = in;
      Layers& layers = made.emplace_back();
      layers.pool = branch.pool;
      for (const Filter& filter : branch.filters) layers.filters.push_back(make(filter));
      const std::int64_t shared = channels_;
      for (const Filter& filter : branch.fork) {
        channels_ = shared;
        layers.fork.push_back(make(filter));
        out += channels_;
      }
      if (branch.fork.empty()) out += channels_;
    }
    channels_ = out;
    return made;
  }

  void make_parameters() {
    for (const Filter& filter : {Filter{32, 3, 3, 2, false}, Filter{32, 3, 3, 1, false},
                                 Filter{64, 3, 3}, Filter{80, 1, 1}, Filter{192, 3, 3, 1, false}}) {
      stem_.push_back(make(filter));
    }
    for (std::int64_t pooled : {32, 64, 64}) early_.push_back(make(block_a(pooled)));
    early_.push_back(make(block_b()));
    for (std::int64_t inner : {128, 160, 160, 192}) early_.push_back(make(block_c(inner)));
    if (config_.auxiliary) {
      const std::int64_t in = channels_;
      auxiliary_ = {make({128, 1, 1}), make({768, 5, 5, 1, false})};
      auxiliary_head_ = make_linear_layer(step_, channels_, config_.classes);
      channels_ = in;
    }
    late_.push_back(make(block_d()));
    for (int i = 0; i < 2; ++i) late_.push_back(make(block_e()));
    head_ = make_linear_layer(step_, channels_, config_.classes);
  }

  TensorRef call(const ConvNorm& layer, TensorRef x) {
    return relu_in_place(tape_, apply(step_, layer, x));
  }

  TensorRef call(const MixedLayers& mixed, TensorRef x) {
    std::vector<TensorRef> outputs;
    for (const Layers& branch : mixed) {
      TensorRef y = x;
      if (branch.pool == Branch::Pool::kAverage) y = avg_pool2d(tape_, y, kSmoothing);
      if (branch.pool == Branch::Pool::kMaximum) y = max_pool2d(tape_, y, kHalving);
      for (const ConvNorm& layer : branch.filters) y = call(layer, y);
      if (!branch.fork.empty()) {
        std::vector<TensorRef> sides;
        for (const ConvNorm& layer : branch.fork) sides.push_back(call(layer, y));
        y = cat(tape_, sides, 1);
      }
      outputs.push_back(y);
    }
    return cat(tape_, outputs, 1);
  }

  TensorRef forward() {
    TensorRef x = image_;
    for (std::size_t i = 0; i < stem_.size(); ++i) {
      if (i == 3) x = max_pool2d(tape_, x, kHalving);
      x = call(stem_[i], x);
    }
    x = max_pool2d(tape_, x, kHalving);
    for (const MixedLayers& mixed : early_) x = call(mixed, x);
    if (config_.auxiliary) auxiliary_scores_ = auxiliary(x);
    for (const MixedLayers& mixed : late_) x = call(mixed, x);
    x = adaptive_avg_pool2d(tape_, x, {1, 1});
    return apply(step_, head_, flatten(tape_, dropout(tape_, x, config_.dropout), 1));
  }

  TensorRef auxiliary(TensorRef x) {
    x = avg_pool2d(tape_, x, kAuxiliaryPool);
    for (const ConvNorm& layer : auxiliary_) x = call(layer, x);
    return apply(step_, auxiliary_head_, flatten(tape_, adaptive_avg_pool2d(tape_, x, {1, 1}), 1));
  }

  TensorRef loss(TensorRef scores) {
    const TensorRef main = cross_entropy(tape_, scores, target_);
    if (!config_.auxiliary) return main;
    const TensorRef side = cross_entropy(tape_, auxiliary_scores_, target_);
    return add(tape_, main, mul(tape_, side, kAuxiliaryWeight));
  }

  std::int64_t channels_ = 3;  // channels of the next layer's input
  std::vector<ConvNorm> stem_, auxiliary_;
  std::vector<MixedLayers> early_, late_;
  LinearLayer auxiliary_head_, head_;
  TensorRef image_, target_, auxiliary_scores_;
};

// Smallest images out of which something comes (torchvision names 75 too).
constexpr std::int64_t kSmallest = 75, kSmallestWithAuxiliary = 299;

}  // namespace

Result<InceptionConfig> inception_preset(std::string_view name) {
  if (name == "inception_v3") return InceptionConfig();
  return unknown_preset("an Inception preset", name, {"inception_v3"});
}

Result<ExecutionGraph> build_inception(const InceptionConfig& config) {
  const std::int64_t least = config.auxiliary ? kSmallestWithAuxiliary : kSmallest;
  auto good = all_good(
      {expect_at_least("batch", 1, config.batch), expect_at_least("classes", 1, config.classes),
       expect_at_least("resolution", least, config.resolution),
       expect_probability("dropout", config.dropout),
       expect_countable("activations", {config.batch, 64, config.resolution, config.resolution}),
       expect_countable("scores", {config.batch, config.classes, 2048})});
  if (!good) return Unexpected{good.error()};
  return InceptionBuilder(config).build();
}

}  // namespace perfmodel
