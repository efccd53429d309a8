#include <algorithm>

#include "families.hpp"

/// Normalisations. Batch norm keeps statistics per channel over n h w elements, which do not fit on
/// chip: training reads x twice, backward x and the gradient twice; inference reads x once. cuDNN
/// and MIOpen do each pass in one kernel, the native version in two or three. Layer, group and RMS
/// norm keep a row on chip: one pass forward; backward one kernel for the input's gradient and one
/// for the parameters'.
namespace perfmodel::ops {
namespace {

KernelWork norm_work(const Tensor& x, double reads, double writes, std::int64_t rows) {
  KernelWork work = make_work(KernelFamily::kNorm, x.dtype, reads * bytes(x), writes * bytes(x),
                              4 * reads * static_cast<double>(x.numel));
  rows = std::max<std::int64_t>(1, rows);
  work.shape = RowShape{.rows = rows, .cols = std::max<std::int64_t>(1, x.numel / rows)};
  return work;
}

/// Rows are channels.
KernelWork channel_work(const OpView& op, const Tensor& x, double reads, bool is_cudnn) {
  KernelWork work = norm_work(x, reads, 1, dim(op, x, 1));
  auto& shape = std::get<RowShape>(work.shape);
  shape.is_channel = true;
  shape.is_cudnn = is_cudnn;
  shape.is_channels_last = x.is_channels_last;
  shape.batch = dim(op, x, 0);
  return work;
}

/// cudnn_batch_norm(input, weight, bias, running_mean, running_var, training, ...),
/// miopen_batch_norm alike.
bool lower_fused_batch_norm(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* x = op.tensor_input(0);
  if (!x || x->rank < 2) return false;
  const bool training = bool_input(op, 5, true);
  kernels.push_back(channel_work(op, *x, training ? 2 : 1, true));
  std::get<RowShape>(kernels.back().shape).is_channel = training;
  return true;
}

/// cudnn_batch_norm_backward(input, grad_output, weight, ...): both are read twice.
bool lower_fused_batch_norm_backward(const OpView& op, const Gpu&,
                                     std::vector<KernelWork>& kernels) {
  const Tensor* x = op.tensor_input(0);
  if (!x || x->rank < 2) return false;
  kernels.push_back(channel_work(op, *x, 4, true));
  return true;
}

/// native_batch_norm(input, weight, bias, running_mean, running_var, training, ...): statistics,
/// transform and, on NVIDIA, running averages are priced as one kernel because they were measured
/// so.
bool lower_native_batch_norm(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const Tensor* x = op.tensor_input(0);
  if (!x || x->rank < 2) return false;
  const int at = parameter_index(op, "training");
  const bool training = bool_input(op, at >= 0 ? static_cast<std::size_t>(at) : 5, true);
  if (training) {
    kernels.push_back(channel_work(op, *x, 2, false));
    if (gpu.vendor != "nvidia") kernels.push_back(small_work());
    return true;
  }
  KernelWork transform = make_work(KernelFamily::kElementwise, x->dtype, bytes(*x), bytes(*x),
                                   4 * static_cast<double>(x->numel));
  kernels.push_back(transform);
  return true;
}

/// native_batch_norm_backward(grad_out, input, ...): one block per channel sums both, then
/// transforms them.
bool lower_native_batch_norm_backward(const OpView& op, const Gpu&,
                                      std::vector<KernelWork>& kernels) {
  const Tensor* x = op.tensor_input(1);
  if (!x || x->rank < 2) return false;
  kernels.push_back(channel_work(op, *x, 4, false));
  return true;
}

/// Elements per normalised row: product of normalized_shape (layer norm), or numel / (n groups).
std::int64_t row_count(const OpView& op, const Tensor& x, std::size_t list_at) {
  if (op.name().find("group") != std::string_view::npos) {
    const int n = parameter_index(op, "N");
    const int group = parameter_index(op, "group");
    if (n >= 0 && group >= 0) {
      return int_input(op, static_cast<std::size_t>(n), 1) *
             int_input(op, static_cast<std::size_t>(group), 1);
    }
    return dim(op, x, 0);
  }
  const IntList shape = int_list_input(op, list_at);
  std::int64_t cols = 1;
  for (std::size_t i = 0; i < shape.size; ++i) cols *= shape.values[i];
  if (shape.size == 0) cols = dim(op, x, -1);
  return cols > 0 ? x.numel / cols : 1;
}

/// native_layer_norm(input, normalized_shape, weight, bias, eps), native_group_norm(input, ..., N,
/// C, HxW, group, eps).
bool lower_layer_norm(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* x = op.tensor_input(0);
  if (!x) return false;
  if (x->numel == 0) return true;
  const bool is_group = op.name().find("group") != std::string_view::npos;
  kernels.push_back(norm_work(*x, 1, is_group ? 0 : 1, row_count(op, *x, 1)));
  std::get<RowShape>(kernels.back().shape).is_rms = op.name().find("rms") != std::string_view::npos;
  if (is_group) {  // row moments first; scale and shift per channel, then the transform
    kernels.push_back(small_work());
    kernels.push_back(make_work(KernelFamily::kElementwise, x->dtype, bytes(*x), bytes(*x),
                                2 * static_cast<double>(x->numel)));
  }
  return true;
}

/// native_layer_norm_backward(grad_out, input, normalized_shape, mean, rstd, ...).
bool lower_layer_norm_backward(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const Tensor* x = op.tensor_input(1);
  if (!x) return false;
  if (x->numel == 0) return true;
  const std::int64_t rows = row_count(op, *x, 2);
  kernels.push_back(norm_work(*x, 2, 1, rows));
  // NVIDIA's row kernels (rows.cpp) are priced with the parameters' gradients.
  const Architecture& a = gpu.architecture;
  const bool is_half = x->dtype == DType::kFloat16 || x->dtype == DType::kBFloat16;
  const bool is_row_kernel =
      gpu.vendor == "nvidia" && (is_half ? a.half_norm_row_clocks : a.norm_row_clocks) > 0;
  kernels.push_back(is_row_kernel
                        ? part_work()
                        : norm_work(*x, 2, 0, x->numel / std::max<std::int64_t>(1, rows)));
  return true;
}

}  // namespace

std::span<const NamedLower> norm_rules() {
  static constexpr NamedLower kRules[] = {
      {"norm.fused_batch_norm", lower_fused_batch_norm},
      {"norm.fused_batch_norm_backward", lower_fused_batch_norm_backward},
      {"norm.native_batch_norm", lower_native_batch_norm},
      {"norm.native_batch_norm_backward", lower_native_batch_norm_backward},
      {"norm.layer_norm", lower_layer_norm},
      {"norm.layer_norm_backward", lower_layer_norm_backward},
  };
  return kRules;
}

}  // namespace perfmodel::ops
