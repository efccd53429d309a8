#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace perfmodel {

/// Values by 64-bit keys, in the order in which the keys were added. A lookup reads a slot of four
/// bytes and the item; keys that are asked for in that order find their items in the cache.
template <class Value>
class KeyTable {
 public:
  using Item = std::pair<std::uint64_t, Value>;

  /// nullptr: not in the table. Valid until the next call of [] or reserve().
  const Value* find(std::uint64_t key) const {
    if (items_.empty()) return nullptr;
    const std::uint32_t item = slots_[slot_of(key)];
    return item == 0 ? nullptr : &items_[item - 1].second;
  }
  Value* find(std::uint64_t key) { return const_cast<Value*>(std::as_const(*this).find(key)); }

  /// Adds a default value if the key is new.
  Value& operator[](std::uint64_t key) {
    if (2 * items_.size() >= slots_.size()) reserve(2 * items_.size() + 4);
    std::uint32_t& item = slots_[slot_of(key)];
    if (item == 0) {
      items_.emplace_back(key, Value{});
      item = static_cast<std::uint32_t>(items_.size());
    }
    return items_[item - 1].second;
  }

  /// Makes room for `count` keys.
  void reserve(std::size_t count) {
    if (2 * count <= slots_.size()) return;
    items_.reserve(count);
    slots_.assign(std::bit_ceil(2 * count), 0);
    std::uint32_t number = 0;
    for (const Item& item : items_) slots_[slot_of(item.first)] = ++number;
  }

  std::size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  /// The slot of the key, or the empty one that it would take.
  std::size_t slot_of(std::uint64_t key) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t slot = ((key ^ key >> 32) * 0x9e3779b97f4a7c15U >> 32) & mask;
    while (slots_[slot] != 0 && items_[slots_[slot] - 1].first != key) slot = (slot + 1) & mask;
    return slot;
  }

  std::vector<Item> items_;
  // 1 + the place in `items_`; 0: empty. At most half are taken.
  std::vector<std::uint32_t> slots_;
};

}  // namespace perfmodel
