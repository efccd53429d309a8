#pragma once

#include <cstddef>
#include <unordered_map>

#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {

/// The range of a sum of kernel times, as likely to hold as the ranges of the single ones.
///
///   w_i = n_i (high_i - t_i)                              n_i kernels that are priced alike
///   W_f^2 = rho (sum w_i)^2 + (1 - rho) sum w_i^2         within a family
///   high  = sum n_i t_i + sqrt(sum_f W_f^2)               families are independent
///
/// and the same below. Kernels priced alike are one kernel with one error. `rho`, the correlation
/// of two errors of one family on one GPU: 0.35 (docs/kernel_models.md). Time added by the board's
/// power limit counts in the time and the upper end only.
class SummedRange {
 public:
  static constexpr double kCorrelation = 0.35;

  /// `added`: part of the price's time that the power limit added, see `sustained`. `count`: of
  /// such kernels.
  void add(KernelFamily family, const Price& price, Microseconds added = Microseconds{0},
           double count = 1);

  struct Range {
    Microseconds time{0}, low{0}, high{0};
  };
  Range range() const;

 private:
  struct Kernel {
    KernelFamily family;
    double us, low_us, high_us;

    bool operator==(const Kernel&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Kernel& kernel) const;
  };

  std::unordered_map<Kernel, double, Hash> kernels_;  // times of bursts -> how many
  double added_us_ = 0;
};

}  // namespace perfmodel
