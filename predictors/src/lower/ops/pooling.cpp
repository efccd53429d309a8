#include <algorithm>

#include "families.hpp"

/// Pooling and interpolation: one kernel over input and output (and indices); a window of k
/// elements costs k-1 FLOP per result. max_pool2d_with_indices_backward clears its output in a
/// child (aten::zero_) and then adds into it.
namespace perfmodel::ops {
namespace {

/// As a convolution has them, of three dimensions with depth in the filter; the pass is forward or
/// the input's gradient.
ConvolutionShape windows(const OpView& op, bool is_backward, const IntList& size) {
  ConvolutionShape shape{.pass = is_backward ? ConvolutionShape::Pass::kInputGradient
                                             : ConvolutionShape::Pass::kForward,
                         .r = size.at(0, 1),
                         .s = size.at(1, 1)};
  const Tensor* results = is_backward ? op.tensor_input(0) : op.tensor_output(0);
  if (!results || results->rank < 3) return shape;
  if (results->rank > 4) shape.s *= size.at(2, 1);
  shape.q = dim(op, *results, -1);
  shape.p = dim(op, *results, -2);
  shape.n = results->numel / std::max<std::int64_t>(1, shape.p * shape.q);  // images' channels
  shape.channels_last = results->is_channels_last;
  if (const Tensor* image = is_backward ? op.tensor_output(0) : op.tensor_input(0)) {
    shape.h = dim(op, *image, -2);
    shape.w = dim(op, *image, -1);
  }
  shape.c = shape.k = 1;
  return shape;
}

bool lower_pooling(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  Traffic t = traffic(op);
  if (!t.any) return false;
  if (t.output_elements == 0) return true;
  // Backward passes get the forward input only for its shape, except adaptive max pooling.
  const bool is_backward = op.name().find("backward") != std::string_view::npos;
  if (is_backward) t.read -= bytes(op.tensor_input(1));
  const IntList window = int_list_input(op, is_backward ? 2 : 1);
  const double area = static_cast<double>(window.at(0, 1)) * static_cast<double>(window.at(1, 1));
  kernels.push_back(make_work(KernelFamily::kPooling, t.dtype, t.read, t.written,
                              area * static_cast<double>(t.output_elements)));
  // The list of adaptive ones is the size of the results.
  if (op.name().find("adaptive") == std::string_view::npos) {
    kernels.back().shape = windows(op, is_backward, window);
  }
  return true;
}

// Without the forward input among the arguments, or with it as plain data.
bool lower_plain_pooling(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Traffic t = traffic(op);
  if (!t.any) return false;
  kernels.push_back(make_work(KernelFamily::kPooling, t.dtype, t.read, t.written,
                              4 * static_cast<double>(t.output_elements)));
  return true;
}

}  // namespace

std::span<const NamedLower> pooling_rules() {
  static constexpr NamedLower kRules[] = {
      {"pooling", lower_pooling},
      {"pooling.plain", lower_plain_pooling},
  };
  return kRules;
}

}  // namespace perfmodel::ops
