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

/// cross_entropy(logits, target, loss, ...) of Liger, a Triton kernel of one program per row, which
/// fills an SM (32 warps): it goes through the row for its maximum and sum, and again to put the
/// gradient there. The second pass reads DRAM as far as the rows in flight do not fit into L2.
/// Taken as a stream; no measurement of it was used.
bool lower_in_place_cross_entropy(const OpView& op, const Gpu& gpu,
                                  std::vector<KernelWork>& kernels) {
  constexpr double kFlop = 30;  // per logit: two exponentials
  const Tensor* logits = op.tensor_input(0);
  const Tensor* target = op.tensor_input(1);
  if (!logits || !target || logits->rank != 2) return false;
  if (logits->numel == 0) return true;
  const auto rows = static_cast<double>(dim(op, *logits, 0));
  const double in_flight = bytes(*logits) / rows * std::min<double>(rows, gpu.num_sms);
  const double evicted = std::max(0.0, 1 - gpu.l2_size.value / in_flight);
  kernels.push_back(make_work(
      KernelFamily::kElementwise, logits->dtype, bytes(*logits) * (1 + evicted) + bytes(*target),
      bytes(*logits) + bytes(op.tensor_input(2)), kFlop * static_cast<double>(logits->numel)));
  return true;
}

}  // namespace

std::span<const NamedLower> loss_rules() {
  static constexpr NamedLower kRules[] = {
      {"loss.nll", lower_nll},
      {"loss.in_place_cross_entropy", lower_in_place_cross_entropy},
  };
  return kRules;
}

}  // namespace perfmodel::ops
