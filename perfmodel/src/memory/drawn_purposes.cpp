#include "drawn_purposes.hpp"

#include <algorithm>
#include <iterator>

namespace perfmodel {

std::vector<DrawnPurpose> drawn_purposes(std::span<const MemoryPoint> curve) {
  std::vector<DrawnPurpose> steady, changing;
  for (std::size_t i = 0; i < kMemoryPurposes && !curve.empty(); ++i) {
    const auto bytes = [i](const MemoryPoint& point) { return point.bytes[i]; };
    const auto [least, most] = std::ranges::minmax(curve, {}, bytes);
    if (!(bytes(most) > 0)) continue;
    std::string name(to_string(static_cast<MemoryPurpose>(i)));
    if (bytes(least) == bytes(most)) {
      steady.push_back({i, name + ", all the step"});
    } else {
      changing.push_back({i, std::move(name)});
    }
  }
  std::ranges::move(changing, std::back_inserter(steady));
  return steady;
}

}  // namespace perfmodel
