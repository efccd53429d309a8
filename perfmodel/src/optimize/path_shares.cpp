#include "path_shares.hpp"

#include <algorithm>
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

namespace {

std::vector<bool> phases_of_optimizers(const Prediction& prediction) {
  std::vector<bool> found;
  for (const Prediction::Phase& phase : prediction.phases) {
    found.push_back(phase.label.find("Optimizer.step") != std::string::npos);
  }
  return found;
}

struct PathPoint {
  double start_us, end_us;  // end: of kernels
  double* share;
};

PathPoint point_of(const Prediction& prediction, const Prediction::PathPoint& at,
                   const std::vector<bool>& updates, PathShares& shares) {
  const PredictedOp& op = prediction.ops[at.op];
  const auto phase = static_cast<std::size_t>(op.phase);
  const bool update = phase < updates.size() && updates[phase];
  if (at.kernel < 0) {
    return {op.start_us, op.start_us, update ? &shares.optimizer_host_us : &shares.host_us};
  }
  const PredictedKernel& kernel = op.kernels[at.kernel];
  const auto family = static_cast<std::size_t>(kernel.family);
  return {kernel.start_us, kernel.start_us + kernel.price.time.count(),
          update ? &shares.optimizer_family_us[family] : &shares.family_us[family]};
}

}  // namespace

// A point of the path takes the time up to the next one. If the path meets the host work of an op
// twice, the second time counts as the time before the op. If the device sets the pace, the path
// ends with its last task, which may end long after the host's.
PathShares path_shares(const Prediction& prediction) {
  PathShares shares;
  const std::vector<bool> updates = phases_of_optimizers(prediction);
  std::vector<PathPoint> path;
  for (const Prediction::PathPoint& at : prediction.path_points) {
    path.push_back(point_of(prediction, at, updates, shares));
  }
  const double steps = std::max<double>(1, static_cast<double>(prediction.iterations.size()));
  const double window = steps * prediction.e2e_us;
  const bool ends_on_device =
      !path.empty() && prediction.device_bound && path.back().end_us > path.back().start_us;
  const double end = ends_on_device ? path.back().end_us : window;
  double from = end - window;
  double* last = path.empty() ? &shares.host_us : path.front().share;
  for (const PathPoint& point : path) {
    const double start = std::min(point.start_us, end);
    if (start > from) {
      *last += (start - from) / steps;
      from = start;
    }
    last = point.share;
  }
  *last += (end - from) / steps;
  return shares;
}

}  // namespace perfmodel::advice
