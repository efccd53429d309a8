#include "convolution_backend.hpp"

#include <algorithm>

namespace perfmodel {
namespace {

using enum ConvolutionBackend;

bool is_depthwise(const ConvolutionFacts& facts) {
  const std::size_t rank = facts.input.size();
  return !facts.transposed && facts.groups > 1 && (rank == 4 || rank == 5) &&
         facts.weight.size() == rank && facts.input[1] == facts.groups &&
         facts.weight[0] % facts.groups == 0;
}

bool is_dilated(const ConvolutionFacts& facts) {
  return std::ranges::any_of(facts.dilation, [](std::int64_t each) { return each != 1; });
}

// The sizes of row-major fp16 images at which PyTorch's authors measured cuDNN as the faster one
// (`check_cudnn_depthwise_workload_with_filter`).
bool cudnn_is_faster(const ConvolutionFacts& facts) {
  if (facts.dtype != DType::kFloat16 || facts.input.size() != 4 || facts.stride.size() != 2 ||
      is_dilated(facts)) {
    return false;
  }
  const std::int64_t batch = facts.input[0], channels = facts.input[1];
  const std::int64_t height = facts.input[2], width = facts.input[3];
  const std::int64_t filter = facts.weight[3], stride = facts.stride[1];
  if (channels < 32 || (facts.stride[0] != stride && height != 1)) return false;
  if (height == 1 && stride == 1) return true;
  if (facts.weight[2] != filter || (filter != 1 && filter != 3 && filter != 5)) return false;
  if (width < 7 || stride > 2) return false;
  if (stride == 1) return true;
  if (batch == 1) return filter > 1 || width <= 28;
  if (filter == 1) return batch <= 16 && channels >= 128 && width <= 7;
  return channels >= 512 || (channels >= 256 && width >= 28);
}

bool cudnn_takes_depthwise(const ConvolutionFacts& facts) {
  return (facts.channels_last && facts.dtype != DType::kFloat64) || cudnn_is_faster(facts);
}

bool miopen_takes_depthwise(const ConvolutionFacts& facts) {
  const bool known_type = facts.dtype == DType::kFloat32 || facts.dtype == DType::kFloat16 ||
                          facts.dtype == DType::kBFloat16;
  return known_type && !is_dilated(facts);
}

ConvolutionBackend own_depthwise(const ConvolutionFacts& facts) {
  return facts.input.size() == 4 ? kDepthwise2d : kDepthwise3d;
}

ConvolutionBackend on_nvidia(const ConvolutionFacts& facts) {
  if (is_depthwise(facts) && !cudnn_takes_depthwise(facts)) return own_depthwise(facts);
  return facts.transposed ? kCudnnTransposed : kCudnn;
}

ConvolutionBackend on_amd(const ConvolutionFacts& facts) {
  if (is_depthwise(facts)) {
    return miopen_takes_depthwise(facts) ? kMiopenDepthwise : own_depthwise(facts);
  }
  return facts.transposed ? kMiopenTransposed : kMiopen;
}

}  // namespace

ConvolutionBackend convolution_backend(const ConvolutionFacts& facts) {
  switch (facts.device) {
    case ConvolutionFacts::Device::kCpu: return kOneDnn;
    case ConvolutionFacts::Device::kNvidia: return on_nvidia(facts);
    case ConvolutionFacts::Device::kAmd: return on_amd(facts);
  }
  return kOneDnn;
}

std::string_view convolution_op(ConvolutionBackend backend) {
  switch (backend) {
    case kOneDnn: return "aten::mkldnn_convolution";
    case kCudnn: return "aten::cudnn_convolution";
    case kCudnnTransposed: return "aten::cudnn_convolution_transpose";
    case kMiopen: return "aten::miopen_convolution";
    case kMiopenTransposed: return "aten::miopen_convolution_transpose";
    case kMiopenDepthwise: return "aten::miopen_depthwise_convolution";
    case kDepthwise2d: return "aten::_conv_depthwise2d";
    case kDepthwise3d: return "aten::conv_depthwise3d";
  }
  return "";
}

}  // namespace perfmodel
