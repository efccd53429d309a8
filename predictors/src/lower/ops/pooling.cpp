#include "families.hpp"
#include "rule_support.hpp"

/// Pooling and interpolation: one kernel over input and output (and indices); a window of k
/// elements costs k-1 FLOP per result. max_pool2d_with_indices_backward clears its output in a
/// child (aten::zero_) and then adds into it.
namespace perfmodel::ops {
namespace {

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
  return true;
}

}  // namespace

void add_pooling(OpRuleRegistry& registry) {
  registry.add({"aten::max_pool2d_with_indices", "aten::max_pool2d_with_indices_backward",
                "aten::max_pool3d_with_indices", "aten::max_pool3d_with_indices_backward",
                "aten::avg_pool2d", "aten::avg_pool2d_backward", "aten::avg_pool3d",
                "aten::avg_pool3d_backward", "aten::adaptive_max_pool2d",
                "aten::adaptive_max_pool2d_backward"},
               make_rule(lower_pooling));
  // Without the forward input among the arguments, or with it as plain data.
  registry.add({"aten::_adaptive_avg_pool2d", "aten::_adaptive_avg_pool2d_backward",
                "aten::adaptive_avg_pool2d", "aten::_adaptive_avg_pool3d",
                "aten::upsample_nearest2d", "aten::upsample_nearest2d_backward",
                "aten::upsample_bilinear2d", "aten::upsample_bilinear2d_backward",
                "aten::upsample_bicubic2d", "aten::upsample_bicubic2d_backward", "aten::im2col",
                "aten::col2im", "aten::grid_sampler_2d", "aten::grid_sampler_2d_backward"},
               make_rule([](const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
                 const Traffic t = traffic(op);
                 if (!t.any) return false;
                 kernels.push_back(make_work(KernelFamily::kPooling, t.dtype, t.read, t.written,
                                             4 * static_cast<double>(t.output_elements)));
                 return true;
               }));
}

}  // namespace perfmodel::ops
