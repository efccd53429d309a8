#include "trace/intervals.hpp"

#include <algorithm>

#include "base/sort_runs.hpp"

namespace perfmodel {

Intervals merged(Intervals intervals) {
  sort_runs(intervals);
  Intervals made;
  for (const auto& [begin, end] : intervals) {
    if (end <= begin) continue;
    if (!made.empty() && begin <= made.back().second) {
      made.back().second = std::max(made.back().second, end);
    } else {
      made.emplace_back(begin, end);
    }
  }
  return made;
}

std::int64_t total_length(const Intervals& intervals) {
  std::int64_t length = 0;
  for (const auto& [begin, end] : intervals) length += end - begin;
  return length;
}

Intervals common(const Intervals& a, const Intervals& b) {
  Intervals made;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end();) {
    const std::int64_t begin = std::max(i->first, j->first), end = std::min(i->second, j->second);
    if (begin < end) made.emplace_back(begin, end);
    (i->second < j->second ? i : j)++;
  }
  return made;
}

Intervals without(const Intervals& a, const Intervals& b) {
  Intervals made;
  auto j = b.begin();
  for (auto [begin, end] : a) {
    while (j != b.end() && j->second <= begin) ++j;
    for (auto k = j; k != b.end() && k->first < end; ++k) {
      if (k->first > begin) made.emplace_back(begin, k->first);
      begin = std::max(begin, k->second);
    }
    if (begin < end) made.emplace_back(begin, end);
  }
  return made;
}

}  // namespace perfmodel
