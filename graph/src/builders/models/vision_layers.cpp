#include "vision_layers.hpp"

#include "builders/emit/matmul.hpp"

namespace perfmodel {

ConvLayer make_conv(TrainingStep& step, std::int64_t in, std::int64_t out, const Shape& kernel,
                    const Conv2d& conv, bool bias) {
  const Shape weight = conv.transposed ? Shape{in, out / conv.groups, kernel[0], kernel[1]}
                                       : Shape{out, in / conv.groups, kernel[0], kernel[1]};
  ConvLayer layer{.weight = step.parameter(weight), .bias = {}, .conv = conv};
  if (bias) layer.bias = step.parameter({out});
  return layer;
}

TensorRef apply(TrainingStep& step, const ConvLayer& layer, TensorRef x) {
  return conv2d(step.tape(), x, layer.weight, layer.bias, layer.conv);
}

BatchNorm make_batch_norm(TrainingStep& step, std::int64_t channels, double epsilon) {
  BatchNorm norm;
  norm.weight = step.parameter({channels});
  norm.bias = step.parameter({channels});
  norm.mean = step.buffer(DType::kFloat32, {channels});
  norm.variance = step.buffer(DType::kFloat32, {channels});
  norm.batches = step.buffer(DType::kInt64, {});
  norm.epsilon = epsilon;
  return norm;
}

LinearLayer make_linear_layer(TrainingStep& step, std::int64_t in, std::int64_t out) {
  const TensorRef weight = step.parameter({out, in});
  return {weight, step.parameter({out})};
}

TensorRef apply(TrainingStep& step, const LinearLayer& layer, TensorRef x) {
  return linear(step.tape(), x, layer.weight, layer.bias);
}

ConvNorm make_conv_norm(TrainingStep& step, std::int64_t in, std::int64_t out, const Shape& kernel,
                        const Conv2d& conv, double epsilon) {
  ConvLayer filter = make_conv(step, in, out, kernel, conv);
  return {.conv = filter, .norm = make_batch_norm(step, out, epsilon)};
}

TensorRef apply(TrainingStep& step, const ConvNorm& layer, TensorRef x) {
  return batch_norm(step.tape(), apply(step, layer.conv, x), layer.norm);
}

}  // namespace perfmodel
