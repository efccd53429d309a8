#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "perfmodel/prediction.hpp"

namespace perfmodel::advice {

inline constexpr std::size_t kFamilies = static_cast<std::size_t>(KernelFamily::kSmall) + 1;

/// Which tasks of a step a rewrite may change: host work and kernels by family, of the optimizer
/// and of all else.
struct Touch {
  bool host = false, optimizer_host = false;
  std::uint64_t families = 0, optimizer_families = 0;  ///< bit per KernelFamily

  static constexpr std::uint64_t kAllFamilies = (std::uint64_t{1} << kFamilies) - 1;
  static constexpr std::uint64_t of(KernelFamily family) {
    return std::uint64_t{1} << static_cast<std::size_t>(family);
  }
};

/// Shares of the critical path of a step [us]; they add up to the step.
struct PathShares {
  double host_us = 0, optimizer_host_us = 0;
  std::array<double, kFamilies> family_us{}, optimizer_family_us{};

  /// The most that a rewrite may gain: without some tasks, a longest path is shorter by at most
  /// their share of it. Gaps and latencies count as the later task's.
  double touched_us(const Touch& touch) const;
};

/// Needs a prediction that kept its ops.
PathShares path_shares(const Prediction& prediction);

}  // namespace perfmodel::advice
