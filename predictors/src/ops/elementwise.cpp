#include <algorithm>
#include <utility>

#include "families.hpp"
#include "rule_support.hpp"

/// Pointwise ops: one kernel, each input read once, each output written once, a few FLOP per
/// element. In place, an op reads and writes the same tensor. Broadcast inputs count with their own
/// size.
namespace perfmodel::ops {
namespace {

struct Pointwise {
  std::string_view name;
  double flop;  ///< per output element; transcendental functions ~ 10-30 instructions
  bool has_in_place;
};

constexpr Pointwise kPointwise[] = {
    {"aten::add", 1, true},
    {"aten::sub", 1, true},
    {"aten::rsub", 1, false},
    {"aten::mul", 1, true},
    {"aten::div", 4, true},
    {"aten::true_divide", 4, true},
    {"aten::floor_divide", 6, true},
    {"aten::remainder", 8, true},
    {"aten::fmod", 8, true},
    {"aten::neg", 1, true},
    {"aten::abs", 1, true},
    {"aten::sign", 1, true},
    {"aten::sgn", 1, true},
    {"aten::square", 1, true},
    {"aten::reciprocal", 4, true},
    {"aten::exp", 10, true},
    {"aten::exp2", 8, true},
    {"aten::expm1", 15, true},
    {"aten::log", 10, true},
    {"aten::log2", 10, true},
    {"aten::log10", 10, true},
    {"aten::log1p", 15, true},
    {"aten::sqrt", 6, true},
    {"aten::rsqrt", 4, true},
    {"aten::pow", 30, true},
    {"aten::sin", 15, true},
    {"aten::cos", 15, true},
    {"aten::tan", 20, true},
    {"aten::asin", 20, true},
    {"aten::acos", 20, true},
    {"aten::atan", 20, true},
    {"aten::atan2", 25, true},
    {"aten::sinh", 20, true},
    {"aten::cosh", 20, true},
    {"aten::tanh", 20, true},
    {"aten::tanh_backward", 3, false},
    {"aten::erf", 20, true},
    {"aten::erfc", 20, true},
    {"aten::erfinv", 30, true},
    {"aten::lgamma", 40, true},
    {"aten::digamma", 40, true},
    {"aten::sigmoid", 12, true},
    {"aten::sigmoid_backward", 3, false},
    {"aten::log_sigmoid_forward", 20, false},
    {"aten::log_sigmoid_backward", 15, false},
    {"aten::logit", 12, true},
    {"aten::logit_backward", 6, false},
    {"aten::relu", 1, true},
    {"aten::relu6", 2, true},
    {"aten::threshold", 1, true},
    {"aten::threshold_backward", 1, false},
    {"aten::leaky_relu", 2, true},
    {"aten::leaky_relu_backward", 2, false},
    {"aten::elu", 12, true},
    {"aten::elu_backward", 6, false},
    {"aten::celu", 12, true},
    {"aten::selu", 12, true},
    {"aten::gelu", 25, true},
    {"aten::gelu_backward", 40, false},
    {"aten::silu", 14, true},
    {"aten::silu_backward", 18, false},
    {"aten::mish", 30, true},
    {"aten::mish_backward", 40, false},
    {"aten::softplus", 20, false},
    {"aten::softplus_backward", 15, false},
    {"aten::hardtanh", 2, true},
    {"aten::hardtanh_backward", 2, false},
    {"aten::hardswish", 4, true},
    {"aten::hardswish_backward", 4, false},
    {"aten::hardsigmoid", 3, true},
    {"aten::hardsigmoid_backward", 3, false},
    {"aten::glu", 14, false},
    {"aten::glu_backward", 18, false},
    {"aten::prelu", 2, false},
    {"aten::_prelu_kernel", 2, false},
    {"aten::_prelu_kernel_backward", 4, false},
    {"aten::clamp", 2, true},
    {"aten::clamp_min", 1, true},
    {"aten::clamp_max", 1, true},
    {"aten::clip", 2, true},
    {"aten::nan_to_num", 3, true},
    {"aten::round", 1, true},
    {"aten::floor", 1, true},
    {"aten::ceil", 1, true},
    {"aten::trunc", 1, true},
    {"aten::frac", 2, true},
    {"aten::maximum", 1, false},
    {"aten::minimum", 1, false},
    {"aten::fmax", 1, false},
    {"aten::fmin", 1, false},
    {"aten::lerp", 3, true},
    {"aten::addcmul", 3, true},
    {"aten::addcdiv", 6, true},
    {"aten::where", 1, false},
    {"aten::_s_where", 1, false},
    {"aten::masked_fill", 1, true},
    {"aten::hypot", 10, true},
    {"aten::copysign", 1, true},
    {"aten::logaddexp", 25, false},
    {"aten::xlogy", 12, true},
    {"aten::heaviside", 1, true},
    {"aten::polar", 30, false},
    {"aten::complex", 0, false},
    {"aten::eq", 1, true},
    {"aten::ne", 1, true},
    {"aten::lt", 1, true},
    {"aten::le", 1, true},
    {"aten::gt", 1, true},
    {"aten::ge", 1, true},
    {"aten::isnan", 1, false},
    {"aten::isinf", 1, false},
    {"aten::isfinite", 1, false},
    {"aten::isposinf", 1, false},
    {"aten::isneginf", 1, false},
    {"aten::signbit", 1, false},
    {"aten::logical_and", 1, true},
    {"aten::logical_or", 1, true},
    {"aten::logical_xor", 1, true},
    {"aten::logical_not", 1, true},
    {"aten::bitwise_and", 1, true},
    {"aten::bitwise_or", 1, true},
    {"aten::bitwise_xor", 1, true},
    {"aten::bitwise_not", 1, true},
    {"aten::bitwise_left_shift", 1, true},
    {"aten::bitwise_right_shift", 1, true},
    {"aten::__and__", 1, false},
    {"aten::__or__", 1, false},
    {"aten::__xor__", 1, false},
    {"aten::__lshift__", 1, false},
    {"aten::__rshift__", 1, false},
    {"aten::cumsum_backward", 1, false},
    {"aten::_amp_update_scale", 1, true},
    // Losses without reduction, and the pointwise part of reducing ones.
    {"aten::binary_cross_entropy", 25, false},
    {"aten::binary_cross_entropy_backward", 10, false},
    {"aten::mse_loss", 2, false},
    {"aten::mse_loss_backward", 3, false},
    {"aten::smooth_l1_loss", 4, false},
    {"aten::smooth_l1_loss_backward", 4, false},
    {"aten::huber_loss", 4, false},
    {"aten::huber_loss_backward", 4, false},
    {"aten::soft_margin_loss", 20, false},
    // Random numbers: Philox, ~ 10 integer rounds per 4 numbers.
    {"aten::native_dropout", 20, false},
    {"aten::native_dropout_backward", 2, false},
    {"aten::_fused_dropout", 20, false},
    {"aten::_masked_scale", 2, false},
    {"aten::bernoulli", 20, true},
    // Moves that are pointwise in cost.
    {"aten::flip", 0, false},
    {"aten::roll", 0, false},
    {"aten::tril", 1, true},
    {"aten::triu", 1, true},
    {"aten::constant_pad_nd", 0, false},
    {"aten::reflection_pad1d", 0, false},
    {"aten::reflection_pad2d", 0, false},
    {"aten::replication_pad2d", 0, false},
    {"aten::pixel_shuffle", 0, false},
};

double flop_per_element(std::string_view name) {
  const std::string_view wanted = base_name(name);
  for (const Pointwise& op : kPointwise) {
    if (op.name == wanted) return op.flop;
  }
  return 1;
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

void add_elementwise(OpRuleRegistry& registry) {
  std::vector<std::string> names;
  for (const Pointwise& op : kPointwise) {
    names.emplace_back(op.name);
    if (op.has_in_place) names.push_back(std::string(op.name) + "_");
  }
  registry.add(std::move(names), make_rule(lower_pointwise));
  registry.add({"aten::fill_", "aten::zero_", "aten::uniform_", "aten::normal_", "aten::random_",
                "aten::exponential_", "aten::geometric_", "aten::cauchy_", "aten::log_normal_",
                "aten::fill_diagonal_"},
               make_rule(lower_write_only));
  registry.add({"aten::arange", "aten::range", "aten::linspace", "aten::logspace", "aten::eye",
                "aten::tril_indices", "aten::triu_indices", "aten::randperm"},
               make_rule(lower_range));
}

}  // namespace perfmodel::ops
