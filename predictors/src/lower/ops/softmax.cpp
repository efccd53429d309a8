#include <algorithm>

#include "families.hpp"

/// Softmax and log-softmax over one dimension, one kernel. Forward reads x and writes y; a row is
/// read three times (maximum, sum, result) but stays in registers, shared memory or L2. Backward
/// reads y and its gradient.
namespace perfmodel::ops {
namespace {

bool lower_softmax(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* x = op.tensor_input(0);
  if (!x) return false;
  if (x->numel == 0) return true;
  const bool is_backward = op.name().find("backward") != std::string_view::npos;
  const bool is_masked = op.name().find("masked") != std::string_view::npos;
  // The dimension follows the tensors; -1 is by far the most frequent.
  const std::int64_t axis = int_input(op, is_backward ? 2 : is_masked ? 2 : 1, -1);
  const std::int64_t cols = std::max<std::int64_t>(1, dim(op, *x, static_cast<int>(axis)));
  const double n = static_cast<double>(x->numel);
  const Tensor* output = op.tensor_output(0);
  double read = bytes(*x);
  if (is_backward || is_masked) read += bytes(op.tensor_input(1));
  KernelWork work = make_work(KernelFamily::kSoftmax, x->dtype, read,
                              output ? bytes(*output) : bytes(*x), (is_backward ? 4 : 15) * n);
  work.shape = RowShape{.rows = x->numel / cols,
                        .cols = cols,
                        .is_log = op.name().find("log_softmax") != std::string_view::npos};
  kernels.push_back(work);
  return true;
}

}  // namespace

std::span<const NamedLower> softmax_rules() {
  static constexpr NamedLower kRules[] = {
      {"softmax", lower_softmax},
  };
  return kRules;
}

}  // namespace perfmodel::ops
