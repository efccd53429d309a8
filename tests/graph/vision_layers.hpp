#pragma once

#include "builders/emit/batch_norm.hpp"
#include "builders/emit/convolution.hpp"
#include "builders/emit/matmul.hpp"
#include "builders/models/training_step.hpp"

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

/// nn.Conv2d without bias and nn.BatchNorm2d.
struct ConvNorm {
  ConvLayer conv;
  BatchNorm norm;
};
inline ConvNorm make_conv_norm(TrainingStep& step, std::int64_t in, std::int64_t out,
                               const Shape& kernel, const Conv2d& conv) {
  ConvNorm layer{.conv = make_conv(step, in, out, kernel, conv), .norm = {}};
  layer.norm.weight = step.parameter({out});
  layer.norm.bias = step.parameter({out});
  layer.norm.mean = step.buffer(DType::kFloat32, {out});
  layer.norm.variance = step.buffer(DType::kFloat32, {out});
  layer.norm.batches = step.buffer(DType::kInt64, {});
  return layer;
}
inline TensorRef apply(TrainingStep& step, const ConvNorm& layer, TensorRef x) {
  return batch_norm(step.tape(), apply(step, layer.conv, x), layer.norm);
}

}  // namespace perfmodel
