#include <algorithm>

#include "families.hpp"
#include "ops/catalogue.hpp"

/// Pointwise ops: one kernel, each input read once, each output written once, a few FLOP per
/// element. In place, an op reads and writes the same tensor. Broadcast inputs count with their own
/// size.
namespace perfmodel::ops {
namespace {

double flop_per_element(std::string_view name) {
  const Op* op = find_op(name);
  return op ? op->flop : 1;
}

/// A graph says of strides only whether images are channels-last, so slices and transposes are not
/// seen.
Layout layout_of(const OpView& op, const Traffic& t) {
  bool is_mixed = false, is_broadcast = false;
  for_each_gpu_tensor(op, op.inputs(), [&](const Tensor& tensor) {
    if (!is_floating_point(tensor.dtype)) return;  // masks and indices
    is_mixed |= tensor.dtype != t.dtype;
    is_broadcast |= tensor.numel < t.output_elements;
  });
  for_each_gpu_tensor(op, op.outputs(), [&](const Tensor& tensor) {
    is_mixed |= is_floating_point(tensor.dtype) && tensor.dtype != t.dtype;
  });
  return is_broadcast ? Layout::kBroadcast : is_mixed ? Layout::kMixedTypes : Layout::kContiguous;
}

bool lower_pointwise(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Traffic t = traffic(op);
  if (!t.any) return false;
  if (t.output_elements == 0) return true;  // empty tensors launch nothing
  const std::string_view name = op.name();
  const bool is_dropout = name.find("dropout") != std::string_view::npos ||
                          name == "aten::_masked_scale";  // backward of _fused_dropout
  kernels.push_back(make_work(is_dropout ? KernelFamily::kDropout : KernelFamily::kElementwise,
                              t.dtype, t.read, t.written,
                              flop_per_element(name) * static_cast<double>(t.output_elements)));
  kernels.back().layout = layout_of(op, t);
  return true;
}

/// Only writes: fills and generators. `self` is an argument but is not read.
bool lower_write_only(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* self = op.tensor_input(0);
  if (!self || !self->on_gpu()) self = op.tensor_output(0);
  if (!self || !self->on_gpu()) {
    Traffic t = traffic(op);
    return !t.any || t.output_elements == 0;
  }
  if (self->numel == 0) return true;
  const std::string_view name = base_name(op.name());
  // fill_ is a pointwise kernel; a zero_ that does not call fill_ is a memset.
  const bool is_memset = name == "aten::zero";
  const bool is_random = name == "aten::uniform" || name == "aten::normal" ||
                         name == "aten::random" || name == "aten::exponential";
  kernels.push_back(make_work(is_memset ? KernelFamily::kSet : KernelFamily::kElementwise,
                              self->dtype, 0, bytes(*self),
                              (is_random ? 20.0 : 1.0) * static_cast<double>(self->numel)));
  return true;
}

/// Ops of `aten::arange.start_out(..., out)` kind: the out tensor is the last argument or the
/// result.
bool lower_range(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Traffic t = traffic(op);
  if (!t.any || t.output_elements == 0) return true;  // the wrapper: a child has the memory
  kernels.push_back(make_work(KernelFamily::kElementwise, t.dtype, 0,
                              t.written > 0 ? t.written : t.read,
                              static_cast<double>(t.output_elements)));
  return true;
}

}  // namespace

std::span<const NamedLower> elementwise_rules() {
  static constexpr NamedLower kRules[] = {
      {"pointwise", lower_pointwise},
      {"write_only", lower_write_only},
      {"range", lower_range},
  };
  return kRules;
}

}  // namespace perfmodel::ops
