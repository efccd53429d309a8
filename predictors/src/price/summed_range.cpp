#include "perfmodel/predictors/detail/summed_range.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

namespace perfmodel {
namespace {

/// Half-widths of one side, in one family.
struct Widths {
  double sum = 0, squares = 0;

  void add(double width) {
    sum += width;
    squares += width * width;
  }
  double squared() const {
    return SummedRange::kCorrelation * sum * sum + (1 - SummedRange::kCorrelation) * squares;
  }
};

}  // namespace

std::size_t SummedRange::Hash::operator()(const Kernel& kernel) const {
  const std::hash<double> hash;
  std::size_t made = static_cast<std::size_t>(kernel.family);
  for (const double us : {kernel.us, kernel.low_us, kernel.high_us}) made = 31 * made + hash(us);
  return made;
}

void SummedRange::add(KernelFamily family, const Price& price, Microseconds added, double count) {
  const double us = (price.time - added).count();
  const double share = price.time.count() > 0 ? us / price.time.count() : 1;
  kernels_[{.family = family,
            .us = us,
            .low_us = price.low.count(),
            .high_us = share * price.high.count()}] += count;
  added_us_ += count * added.count();
}

SummedRange::Range SummedRange::range() const {
  constexpr std::size_t kFamilies = 256;  // values of a std::uint8_t
  std::array<Widths, kFamilies> below, above;
  double burst_us = 0;
  for (const auto& [kernel, count] : kernels_) {
    const auto family = static_cast<std::size_t>(kernel.family);
    burst_us += count * kernel.us;
    below[family].add(count * std::max(0.0, kernel.us - kernel.low_us));
    above[family].add(count * std::max(0.0, kernel.high_us - kernel.us));
  }
  double squared_below = 0, squared_above = 0;
  for (std::size_t i = 0; i < kFamilies; ++i) {
    squared_below += below[i].squared();
    squared_above += above[i].squared();
  }
  const double time = burst_us + added_us_;
  const double growth = burst_us > 0 ? time / burst_us : 1;
  return {.time = Microseconds{time},
          .low = Microseconds{burst_us - std::sqrt(squared_below)},
          .high = Microseconds{time + growth * std::sqrt(squared_above)}};
}

}  // namespace perfmodel
