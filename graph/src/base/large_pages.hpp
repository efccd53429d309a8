#pragma once

#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

namespace perfmodel {

/// Asks the system to back memory that is still untouched by pages of the large kind, where it has
/// such: on some machines a fault of a small page takes longer than the parsing of an event. No
/// more than advice; small areas are left alone.
void advise_large_pages(void* begin, std::size_t bytes);

/// As std::vector::reserve, with that advice. Memory is taken when it is first written.
template <class T>
void reserve_in_large_pages(std::vector<T>& items, std::size_t count) {
  if (count <= items.capacity()) return;
  std::vector<T> larger;
  larger.reserve(count);
  advise_large_pages(larger.data(), larger.capacity() * sizeof(T));
  larger.insert(larger.end(), std::make_move_iterator(items.begin()),
                std::make_move_iterator(items.end()));
  items = std::move(larger);
}

}  // namespace perfmodel
