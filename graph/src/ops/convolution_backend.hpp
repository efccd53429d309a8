#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// The code that computes a convolution in PyTorch. Each has an op of its own.
enum class ConvolutionBackend : std::uint8_t {
  kOneDnn,
  kCudnn,
  kCudnnTransposed,
  kMiopen,
  kMiopenTransposed,
  kMiopenDepthwise,
  kDepthwise2d,  ///< PyTorch's own kernel for one channel per group
  kDepthwise3d,
};

/// Everything that PyTorch's choice depends on.
struct ConvolutionFacts {
  enum class Device : std::uint8_t { kCpu, kNvidia, kAmd } device = Device::kNvidia;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> input = {};                  ///< [n, c, (d,) h, w]
  std::vector<std::int64_t> weight = {};                 ///< [k, c / groups, (d,) r, s]
  std::vector<std::int64_t> stride = {}, dilation = {};  ///< per axis of the image
  std::int64_t groups = 1;
  bool transposed = false;
  bool channels_last = false;  ///< the image or the weights have dense channels
};

/// Follows `_select_conv_backend` in aten/src/ATen/native/Convolution.cpp. PyTorch 1.13 to 2.4
/// choose alike, given cuDNN 8.2 or later and a Volta or later GPU. Each device has its library,
/// switched on. Convolutions that the library refuses and PyTorch computes by im2col (dilated
/// groups or fp64 on AMD, one small image on a CPU) count as the library's.
ConvolutionBackend convolution_backend(const ConvolutionFacts& facts);

/// The op that the backend runs as: "aten::cudnn_convolution".
std::string_view convolution_op(ConvolutionBackend backend);

}  // namespace perfmodel
