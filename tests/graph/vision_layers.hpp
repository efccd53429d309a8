#pragma once

#include "builders/emit/convolution.hpp"
#include "builders/emit/matmul.hpp"
#include "builders/models/module_run.hpp"

namespace perfmodel {

// Layers of small image models for tests: parameters in the order in which PyTorch's modules
// register them, and the ops of a call.

struct ConvLayer {
  TensorRef weight;
  Conv2d conv;
};
/// `kernel` is [height, width]; there is no bias.
inline ConvLayer make_conv(TrainingStep& step, std::int64_t in, std::int64_t out,
                           const Shape& kernel, const Conv2d& conv) {
  return {step.parameter({out, in / conv.groups, kernel[0], kernel[1]}), conv};
}
inline TensorRef apply(TrainingStep& step, const ConvLayer& layer, TensorRef x) {
  return conv2d(step.tape(), x, layer.weight, {}, layer.conv);
}

struct LinearLayer {
  TensorRef weight, bias;
};
inline LinearLayer make_linear_layer(TrainingStep& step, std::int64_t in, std::int64_t out) {
  const TensorRef weight = step.parameter({out, in});
  return {weight, step.parameter({out})};
}
inline TensorRef apply(TrainingStep& step, const LinearLayer& layer, TensorRef x) {
  return linear(step.tape(), x, layer.weight, layer.bias);
}

/// nn.Conv2d without bias and nn.BatchNorm2d, 3 x 3 with a padding of 1, as texts of models have
/// them.
inline Item make_conv_norm(ModuleRun& run, std::int64_t in, std::int64_t out) {
  return run.call("conv_norm_layer", {in, out, Shape{3, 3}, Shape{1, 1}, Shape{1, 1}});
}
inline TensorRef apply(ModuleRun& run, const Item& layer, TensorRef x) {
  return *run.call("conv_norm", {x, layer}).get<TensorRef>();
}
inline TensorRef cross_entropy(ModuleRun& run, TensorRef scores, TensorRef target) {
  return *run.call("cross_entropy", {scores, target}).get<TensorRef>();
}

}  // namespace perfmodel
