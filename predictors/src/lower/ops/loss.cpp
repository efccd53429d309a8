#include <algorithm>

#include "families.hpp"

/// Negative log likelihood: picks one element per row, so it touches a sector per row, not the
/// whole matrix; the backward pass writes one element per row into a matrix that a child
/// (aten::zero_) has cleared.
namespace perfmodel::ops {
namespace {

bool lower_nll(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  constexpr double kSectorBytes = 32;
  const bool is_backward = op.name().find("backward") != std::string_view::npos;
  const Tensor* x = op.tensor_input(is_backward ? 1 : 0);
  const Tensor* target = op.tensor_input(is_backward ? 2 : 1);
  if (!x || !target) return false;
  const double rows = static_cast<double>(target->numel);
  KernelWork work = make_work(KernelFamily::kReduction, x->dtype,
                              bytes(*target) + (is_backward ? 0 : rows * kSectorBytes),
                              is_backward ? rows * kSectorBytes : 8, rows);
  work.shape = RowShape{.rows = is_backward ? target->numel : 1,
                        .cols = is_backward ? 1 : std::max<std::int64_t>(1, target->numel)};
  kernels.push_back(work);
  return true;
}

}  // namespace

std::span<const NamedLower> loss_rules() {
  static constexpr NamedLower kRules[] = {
      {"loss.nll", lower_nll},
  };
  return kRules;
}

}  // namespace perfmodel::ops
