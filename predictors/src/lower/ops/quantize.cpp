#include <algorithm>

#include "families.hpp"

/// Kernels that write a tensor in 8 or 4 bits, with its scales.
namespace perfmodel::ops {
namespace {

bool has_few_bits(const Tensor& tensor) {
  return tensor.dtype == DType::kFloat8 || tensor.dtype == DType::kFloat4;
}

Scaling scaling_of_copies(DType dtype, std::int64_t scales, std::int64_t longest_side) {
  if (dtype == DType::kFloat4) return Scaling::kBlock;
  if (scales <= 1) return Scaling::kTensor;
  return scales <= longest_side ? Scaling::kToken : Scaling::kBlock;
}

/// quantize(x, ...) -> (copies and scales): one kernel reads x once and writes all that is asked
/// for: the copy along rows, the one along columns, or both. 4 FLOP per number and copy (magnitude,
/// maximum, product, rounding).
bool lower_quantize(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* x = op.tensor_input(0);
  if (!x) return false;
  if (x->numel == 0) return true;
  const std::int64_t cols = std::max<std::int64_t>(1, dim(op, *x, -1)), rows = x->numel / cols;
  double written = 0, copies = 0;
  DType dtype = DType::kUnknown;
  std::int64_t scales = 0;  // the most of any copy
  for_each_gpu_tensor(op, op.outputs(), [&](const Tensor& made) {
    written += bytes(made);
    // Scales of powers of two are a type of 8 bits, too.
    if (has_few_bits(made) && 4 * made.numel > x->numel) {
      dtype = made.dtype;
      copies += 1;
    } else {
      scales = std::max(scales, made.numel);
    }
  });
  if (dtype == DType::kUnknown) return false;
  KernelWork work = make_work(KernelFamily::kQuantize, dtype, bytes(*x), written,
                              4 * copies * static_cast<double>(x->numel));
  work.shape = RowShape{.rows = rows,
                        .cols = cols,
                        .scaling = scaling_of_copies(dtype, scales, std::max(rows, cols))};
  kernels.push_back(work);
  return true;
}

/// compute_amax(x): the largest magnitude, before a tensor is quantised with its own scale.
bool lower_amax(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* x = op.tensor_input(0);
  if (!x) return false;
  if (x->numel == 0) return true;
  KernelWork work = make_work(KernelFamily::kReduction, x->dtype, bytes(*x), 4,
                              2 * static_cast<double>(x->numel));
  work.shape = RowShape{.rows = 1, .cols = x->numel};
  kernels.push_back(work);
  return true;
}

}  // namespace

std::span<const NamedLower> quantize_rules() {
  static constexpr NamedLower kRules[] = {
      {"quantize", lower_quantize},
      {"quantize.amax", lower_amax},
  };
  return kRules;
}

}  // namespace perfmodel::ops
