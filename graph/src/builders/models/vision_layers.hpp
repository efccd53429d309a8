#pragma once

#include "builders/emit/batch_norm.hpp"
#include "builders/emit/convolution.hpp"
#include "training_step.hpp"

namespace perfmodel {

// Layers of image models: parameters in the order in which PyTorch's modules register them, and the
// ops of a call.

struct ConvLayer {
  TensorRef weight, bias;
  Conv2d conv;
};
/// `kernel` is [height, width].
ConvLayer make_conv(TrainingStep& step, std::int64_t in, std::int64_t out, const Shape& kernel,
                    const Conv2d& conv, bool bias = false);
TensorRef apply(TrainingStep& step, const ConvLayer& layer, TensorRef x);

BatchNorm make_batch_norm(TrainingStep& step, std::int64_t channels, double epsilon = 1e-5);

struct LinearLayer {
  TensorRef weight, bias;
};
LinearLayer make_linear_layer(TrainingStep& step, std::int64_t in, std::int64_t out);
TensorRef apply(TrainingStep& step, const LinearLayer& layer, TensorRef x);

/// nn.Conv2d without bias and nn.BatchNorm2d, which most image models have side by side.
struct ConvNorm {
  ConvLayer conv;
  BatchNorm norm;
};
ConvNorm make_conv_norm(TrainingStep& step, std::int64_t in, std::int64_t out, const Shape& kernel,
                        const Conv2d& conv, double epsilon = 1e-5);
TensorRef apply(TrainingStep& step, const ConvNorm& layer, TensorRef x);

}  // namespace perfmodel
