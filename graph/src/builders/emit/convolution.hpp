#pragma once

#include "autograd_tape.hpp"
#include "ops/convolution_backend.hpp"

namespace perfmodel {

/// Sizes are [height, width].
struct Conv2d {
  Shape stride = {1, 1}, padding = {0, 0}, dilation = {1, 1};
  std::int64_t groups = 1;
  bool transposed = false;  ///< nn.ConvTranspose2d, no output padding
};

/// Height and width after a convolution or a window of a pooling op.
Shape convolved_size(const Shape& size, const Shape& kernel, const Conv2d& conv);

/// Arguments of a backend's op. `bias` may not exist.
struct ConvolutionCall {
  TensorRef x = {}, weight = {}, bias = {}, out = {};
  Value stride = kNone, padding = kNone, dilation = kNone, output_padding = kNone;
  std::int64_t groups = 1;
  bool benchmark = false, deterministic = false, allow_tf32 = true;
  Shape bias_shape = {};  ///< a view of the bias that can be added to cuDNN's result
};

/// Writes the op of a backend on a GPU. cuDNN leaves the bias to an addition.
void call_convolution(GraphBuilder& graph, ConvolutionBackend backend, const ConvolutionCall& call);

/// How cuDNN's and MIOpen's backward passes begin: the gradient gets the memory format of the
/// image, then the gradient of the weights, if there is one, is allocated.
void begin_library_gradients(GraphBuilder& graph, TensorRef gradient, TensorRef weight_gradient);

/// x [B, C, H, W], weight [K, C / groups, R, S] (transposed: [C, K / groups, R, S]), bias [K] or
/// none. On a GPU it is NVIDIA's; on a CPU transposed ones are not known.
TensorRef conv2d(AutogradTape& tape, TensorRef x, TensorRef weight, TensorRef bias,
                 const Conv2d& conv);

}  // namespace perfmodel
