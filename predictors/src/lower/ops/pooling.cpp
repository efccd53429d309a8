#include "families.hpp"

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
