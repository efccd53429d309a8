#include "data_parallel_moves.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "move_touches.hpp"
#include "pytorch_lines.hpp"

namespace perfmodel::advice {
namespace {

// MiB; DDP has 25.
constexpr double kBucketsBelow[] = {1, 1.5, 2, 3, 4, 6, 8, 12, 16, 20};
constexpr double kBucketsAbove[] = {32,  40,  50,  64,  80,  100,  128,  160,
                                    200, 256, 320, 400, 800, 1600, 3200, 6400};

Axis buckets_axis() {
  Axis axis{.family = "buckets", .stage = Stage::kDataParallel, .is_ladder = true};
  const auto add = [&](double mib) {
    axis.choices.push_back({.text = fmt::format("bucket_cap_mb={:g}", mib),
                            .code = pytorch_lines("cap", mib),
                            .bucket_mib = mib});
  };
  for (double mib : kBucketsBelow) add(mib);
  axis.below = axis.choices.size();
  for (double mib : kBucketsAbove) add(mib);
  axis.touch = kHostWork;
  axis.touch.families = kCollectives;
  return axis;
}

// Half of the largest gradient, a quarter, ... down to a size at which no link is slow.
Axis split_axis(double largest_bytes) {
  constexpr double kLeastMib = 1;
  Axis axis{.family = "buckets", .stage = Stage::kDataParallel, .is_ladder = true};
  std::vector<double> sizes;
  for (double mib = largest_bytes / (1 << 20) / 2; mib >= kLeastMib; mib /= 2) {
    sizes.push_back(std::ceil(100 * mib) / 100);
  }
  std::ranges::reverse(sizes);
  for (double mib : sizes) {
    axis.choices.push_back({.text = fmt::format("split={:g}", mib),
                            .code = pytorch_lines("split", mib),
                            .split_mib = mib});
  }
  axis.below = axis.choices.size();
  axis.touch = kHostWork;
  axis.touch.families = kCollectives | kMoved;
  return axis;
}

Axis views_axis() {
  Axis axis{.family = "buckets", .stage = Stage::kDataParallel};
  axis.choices.push_back({.text = "gradient_as_bucket_view", .code = pytorch_lines("views")});
  axis.touch = kHostWork;
  axis.touch.families = kCollectives | kMoved;
  axis.touch.optimizer_families = kMoved;
  return axis;
}

}  // namespace

std::vector<Axis> bucket_axes(const Job& job) {
  return {buckets_axis(), split_axis(job.largest_gradient_bytes), views_axis()};
}

Axis ranks_axis(std::int64_t world) {
  Axis axis{.family = "ranks", .stage = Stage::kDataParallel, .is_ladder = true};
  std::vector<std::int64_t> fewer;
  for (std::int64_t ranks = world / 2; ranks >= 1; ranks /= 2) fewer.push_back(ranks);
  std::ranges::reverse(fewer);
  for (std::int64_t ranks : fewer) {
    axis.choices.push_back({.text = fmt::format("{} GPUs", ranks),
                            .code = pytorch_lines("ranks", ranks),
                            .ranks = ranks,
                            .same_numbers = false});
  }
  axis.below = axis.choices.size();
  axis.touch = kHostWork;
  axis.touch.families = kCollectives | kMoved;
  return axis;
}

}  // namespace perfmodel::advice
