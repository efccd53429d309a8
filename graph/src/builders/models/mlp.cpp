#include <utility>

#include "builders/emit/ops.hpp"
#include "config_checks.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "vision_layers.hpp"

namespace perfmodel {
namespace {

Result<void> check(const MlpConfig& config) {
  const auto widths = static_cast<std::int64_t>(config.widths.size());
  if (auto good = all_good({expect_at_least("batch", 1, config.batch),
                            expect_at_least("widths: number of them", 2, widths)});
      !good) {
    return good;
  }
  for (std::size_t i = 0; i < config.widths.size(); ++i) {
    if (auto good = expect_at_least("widths", 1, config.widths[i]); !good) return good;
    if (auto good = expect_countable("activations", {config.batch, config.widths[i]}); !good) {
      return good;
    }
    if (i == 0) continue;
    if (auto good = expect_countable("weights", {config.widths[i], config.widths[i - 1]}); !good) {
      return good;
    }
  }
  return {};
}

}  // namespace

Result<MlpConfig> mlp_preset(std::string_view name) {
  MlpConfig config;
  config.name = name;
  if (name == "linear") {
    config.widths.assign(22, 1024);
    config.batch = 512;
    config.relu_behind_last = true;
    config.softmax = true;
  } else if (name != "mnist") {
    return unknown_preset("an MLP preset", name, {"linear", "mnist"});
  }
  return config;
}

Result<ExecutionGraph> build_mlp(const MlpConfig& config) {
  if (auto good = check(config); !good) return Unexpected{good.error()};
  TrainingStep step(config.training);
  std::vector<LinearLayer> layers;
  for (std::size_t i = 1; i < config.widths.size(); ++i) {
    layers.push_back(make_linear_layer(step, config.widths[i - 1], config.widths[i]));
  }
  TensorRef x, target;
  TrainingStep::Parts parts;
  parts.inputs = [&] {
    x = step.input(DType::kFloat32, {config.batch, config.widths.front()});
    target = step.input(DType::kInt64, {config.batch});
  };
  parts.forward = [&] {
    for (std::size_t i = 0; i < layers.size(); ++i) {
      x = apply(step, layers[i], x);
      if (i + 1 < layers.size() || config.relu_behind_last) x = relu(step.tape(), x);
    }
    return config.softmax ? softmax(step.tape(), x, 1) : x;
  };
  parts.loss = [&](TensorRef scores) { return cross_entropy(step.tape(), scores, target); };
  return step.run(parts);
}

}  // namespace perfmodel
