#include <algorithm>

#include "families.hpp"

/// Reductions and scans: one kernel that reads the input once and writes the result. RowShape tells
/// how many results there are; few results over many elements are split over blocks and finished in
/// a second phase of the same kernel.
namespace perfmodel::ops {
namespace {

const Tensor* first_gpu_input(const OpView& op) {
  const Tensor* result = nullptr;
  for_each_gpu_tensor(op, op.inputs(), [&](const Tensor& tensor) {
    if (!result || tensor.numel > result->numel) result = &tensor;
  });
  return result;
}

/// Over outer axes, as a bias gradient or the sum of expanded heads: the innermost axis is left.
/// Only where shapes tell: a square matrix gives the same shape either way.
bool is_strided(const OpView& op, const Tensor& input, const Tensor& output) {
  const auto whole = op.shape(input), left = op.shape(output);
  if (left.empty() || output.numel <= 1 || output.numel == input.numel) return false;
  if (left.size() == whole.size()) return left.back() == whole.back() && left.back() > 1;
  if (left.size() > whole.size()) return false;
  return left.back() == whole.back() && left.back() > 1 &&
         !std::ranges::equal(left, whole.first(left.size()));
}

bool lower_reduction(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* input = first_gpu_input(op);
  if (!input) return false;
  if (input->numel == 0) return true;
  double written = 0;
  std::int64_t results = 1;
  bool strided = false;
  for_each_gpu_tensor(op, op.outputs(), [&](const Tensor& tensor) {
    written += bytes(tensor);
    results = std::max(results, tensor.numel);
    strided |= is_strided(op, *input, tensor);
  });
  const std::string_view name = op.name();
  const bool is_variance =
      name.find("var") != std::string_view::npos || name.find("std") != std::string_view::npos;
  KernelWork work = make_work(KernelFamily::kReduction, input->dtype, bytes(*input), written,
                              (is_variance ? 5.0 : 1.0) * static_cast<double>(input->numel));
  work.shape = RowShape{.rows = results,
                        .cols = std::max<std::int64_t>(1, input->numel / results),
                        .is_strided = strided};
  kernels.push_back(work);
  return true;
}

/// cumsum and relatives: reads and writes everything; along the last dimension CUB needs an init
/// kernel for one-dimensional input.
bool lower_scan(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* input = op.tensor_input(0);
  if (!input) return false;
  if (input->numel == 0) return true;
  if (input->rank <= 1 && input->numel > 1024) kernels.push_back(small_work());
  const Traffic t = traffic(op);
  KernelWork work =
      make_work(KernelFamily::kReduction, input->dtype, bytes(*input),
                std::max(t.written, bytes(*input)), static_cast<double>(input->numel));
  const std::int64_t cols = std::max<std::int64_t>(1, dim(op, *input, -1));
  work.shape = RowShape{.rows = input->numel / cols, .cols = cols};
  kernels.push_back(work);
  return true;
}

}  // namespace

std::span<const NamedLower> reduction_rules() {
  static constexpr NamedLower kRules[] = {
      {"reduction", lower_reduction},
      {"reduction.scan", lower_scan},
  };
  return kRules;
}

}  // namespace perfmodel::ops
