#include "path_shares.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

namespace perfmodel::advice {

double PathShares::touched_us(const Touch& touch) const {
  double us = (touch.host ? host_us : 0) + (touch.optimizer_host ? optimizer_host_us : 0);
  for (std::size_t i = 0; i < kFamilies; ++i) {
    const std::uint64_t bit = std::uint64_t{1} << i;
    if (touch.families & bit) us += family_us[i];
    if (touch.optimizer_families & bit) us += optimizer_family_us[i];
  }
  return us;
}

// A point of the path takes the time up to the next one. Of an op whose host work the path meets
// twice, the second time counts as what stands in front of it.
PathShares path_shares(const Prediction& prediction) {
  PathShares shares;
  std::vector<bool> updates;
  for (const Prediction::Phase& phase : prediction.phases) {
    updates.push_back(phase.label.find("Optimizer.step") != std::string::npos);
  }
  const auto& points = prediction.path_points;
  double* last = &shares.host_us;
  double from = 0, end = 0;
  for (const Prediction::PathPoint& point : points) {
    const PredictedOp& op = prediction.ops[static_cast<std::size_t>(point.op)];
    const bool update = static_cast<std::size_t>(op.phase) < updates.size() &&
                        updates[static_cast<std::size_t>(op.phase)];
    double start = op.start_us;
    double* share = update ? &shares.optimizer_host_us : &shares.host_us;
    if (point.kernel >= 0) {
      const PredictedKernel& kernel = op.kernels[static_cast<std::size_t>(point.kernel)];
      start = kernel.start_us;
      end = std::max(end, start + kernel.price.time.count());
      const auto family = static_cast<std::size_t>(kernel.family);
      share = update ? &shares.optimizer_family_us[family] : &shares.family_us[family];
    }
    if (start > from) {
      *last += start - from;
      from = start;
    }
    last = share;
  }
  *last += std::max(prediction.e2e_us - from, 0.0);
  return shares;
}

}  // namespace perfmodel::advice
