#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

namespace perfmodel {

/// Merges as std::inplace_merge, but leaves the items at both ends alone that are in place: runs of
/// a recording overlap little. Neither run may be empty.
template <class Iterator, class Less>
void merge_runs(Iterator first, Iterator middle, Iterator last, const Less& less) {
  if (!less(*middle, *std::prev(middle))) return;
  first = std::upper_bound(first, middle, *middle, less);
  last = std::lower_bound(middle, last, *std::prev(middle), less);
  std::inplace_merge(first, middle, last, less);
}

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
      merge_runs(begin + borders[i - 2], begin + borders[i - 1], begin + borders[i], less);
      borders[kept++] = borders[i];
    }
    if (borders.size() % 2 == 0) borders[kept++] = borders.back();
    borders.resize(kept);
  }
}

/// Sorts as sort_runs, for large items: it swaps fewer times than there are items. `group_of` gives
/// a small number, 0 or more, by which `less` orders first: a group has fewer runs than all items.
template <class Item, class Less, class GroupOf>
void sort_large_runs(std::vector<Item>& items, const Less& less, const GroupOf& group_of) {
  std::vector<std::uint32_t> order(items.size()), groups(items.size()), begin;
  for (std::size_t i = 0; i < items.size(); ++i) {
    groups[i] = static_cast<std::uint32_t>(group_of(items[i]));
    if (groups[i] + 1 >= begin.size()) begin.resize(groups[i] + 2, 0);
    ++begin[groups[i] + 1];
  }
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[begin[groups[i]]++] = i;
  sort_runs(order, [&](std::uint32_t a, std::uint32_t b) { return less(items[a], items[b]); });
  for (std::uint32_t i = 0; i < order.size(); ++i) {
    constexpr std::size_t kAhead = 12;  // the swaps of other items hide the misses of one
    if (i + kAhead < order.size()) __builtin_prefetch(&items[order[i + kAhead]], 1);
    std::uint32_t from = order[i];
    while (from < i) from = order[from];
    if (from != i) std::swap(items[i], items[from]);
    order[i] = from;  // the item that was here is there now
  }
}

}  // namespace perfmodel
