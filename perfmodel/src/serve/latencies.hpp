#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace perfmodel::serve {

/// How long requests took, in buckets that are an eighth of their value wide. Thread-safe.
class Latencies {
 public:
  void add(double us) {
    const auto whole = static_cast<std::uint64_t>(std::clamp(us, 0.0, 0x1p40));
    counts_[bucket(whole)].fetch_add(1, std::memory_order_relaxed);
    std::uint64_t most = most_.load(std::memory_order_relaxed);
    while (whole > most && !most_.compare_exchange_weak(most, whole)) {
    }
  }

  std::uint64_t count() const {
    std::uint64_t sum = 0;
    for (const auto& count : counts_) sum += count.load(std::memory_order_relaxed);
    return sum;
  }
  std::uint64_t most_us() const { return most_.load(std::memory_order_relaxed); }

  /// Upper border [us] of the bucket below which `share` of the requests are; 0: there was none.
  std::uint64_t quantile_us(double share) const {
    const std::uint64_t all = count();
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i].load(std::memory_order_relaxed);
      if (seen > 0 && static_cast<double>(seen) >= share * static_cast<double>(all)) {
        return std::min(past(i), most_us());
      }
    }
    return 0;
  }

 private:
  static constexpr std::size_t kSteps = 8;
  // 0 to 7 one by one, then eight buckets for each power of two.
  static std::size_t bucket(std::uint64_t us) {
    if (us < kSteps) return us;
    const auto power = static_cast<std::size_t>(std::bit_width(us)) - 4;  // us >> power is 8 to 15
    return kSteps * (power + 1) + (us >> power) - kSteps;
  }
  static std::uint64_t past(std::size_t at) {
    if (at < kSteps) return at;
    const std::size_t power = at / kSteps - 1;
    return ((at % kSteps + kSteps + 1) << power) - 1;
  }

  std::array<std::atomic<std::uint64_t>, kSteps* 40> counts_ = {};
  std::atomic<std::uint64_t> most_ = 0;
};

}  // namespace perfmodel::serve
