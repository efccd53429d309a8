#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

namespace perfmodel {

/// Sorts as std::stable_sort. Takes n log(runs) comparisons, where a run is a stretch that is in
/// order already: recordings consist of few.
template <class Items, class Less = std::less<>>
void sort_runs(Items& items, Less less = {}) {
  std::vector<std::ptrdiff_t> borders = {0};
  const auto begin = items.begin();
  for (std::ptrdiff_t i = 1; i < std::ssize(items); ++i) {
    if (less(begin[i], begin[i - 1])) borders.push_back(i);
  }
  borders.push_back(std::ssize(items));
  while (borders.size() > 2) {
    std::size_t kept = 1;
    for (std::size_t i = 2; i < borders.size(); i += 2) {
      std::inplace_merge(begin + borders[i - 2], begin + borders[i - 1], begin + borders[i], less);
      borders[kept++] = borders[i];
    }
    if (borders.size() % 2 == 0) borders[kept++] = borders.back();
    borders.resize(kept);
  }
}

/// As sort_runs, of items that are large: each is moved once.
template <class Item, class Less>
void sort_large_runs(std::vector<Item>& items, const Less& less) {
  std::vector<std::uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0U);
  sort_runs(order, [&](std::uint32_t a, std::uint32_t b) { return less(items[a], items[b]); });
  for (std::uint32_t first = 0; first < order.size(); ++first) {
    if (order[first] == first) continue;
    Item moved = std::move(items[first]);
    std::uint32_t at = first;
    for (std::uint32_t next = order[at]; next != first; next = order[at]) {
      items[at] = std::move(items[next]);
      order[at] = at;
      at = next;
    }
    items[at] = std::move(moved);
    order[at] = at;
  }
}

}  // namespace perfmodel
