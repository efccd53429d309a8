#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace perfmodel {

/// A fact about each of the recorded ids. Most ids are small: each of those has a place.
template <class Fact>
class ById {
 public:
  /// `count`: about how many ids there are.
  explicit ById(std::size_t count, Fact none = {}) : limit_(16 * count + 1024), none_(none) {}

  Fact& operator[](std::int64_t id) {
    const auto at = static_cast<std::uint64_t>(id);
    if (at >= limit_) return others_.try_emplace(id, none_).first->second;
    if (at >= small_.size()) small_.resize(std::min<std::size_t>(limit_, 2 * at + 1024), none_);
    return small_[at];
  }

 private:
  std::size_t limit_;
  Fact none_;
  std::vector<Fact> small_;
  std::unordered_map<std::int64_t, Fact> others_;
};

}  // namespace perfmodel
