#include "gradient_buckets.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace perfmodel {
namespace {

struct Open {
  std::vector<std::size_t> members;
  double bytes = 0, limit = 0;
};

}  // namespace

std::vector<std::vector<std::size_t>> gradient_buckets(std::span<const BucketedGradient> gradients,
                                                       double first_limit, double limit) {
  std::map<std::int32_t, Open> open_of_group;
  std::vector<std::vector<std::size_t>> buckets;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].sparse) {
      buckets.push_back({i});
      continue;
    }
    Open& open =
        open_of_group.try_emplace(gradients[i].group, Open{.limit = first_limit}).first->second;
    open.members.push_back(i);
    open.bytes += gradients[i].bytes;
    if (open.bytes < open.limit) continue;
    buckets.push_back(std::exchange(open, {.limit = limit}).members);
  }
  const auto closed = static_cast<std::ptrdiff_t>(buckets.size());
  for (auto& [group, open] : open_of_group) {
    if (!open.members.empty()) buckets.push_back(std::move(open.members));
  }
  std::sort(buckets.begin() + closed, buckets.end(),
            [](const auto& a, const auto& b) { return a.front() < b.front(); });
  return buckets;
}

}  // namespace perfmodel
