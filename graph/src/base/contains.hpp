#pragma once

#include <algorithm>

namespace perfmodel {

/// Whether a short list, looked through from its front, has a value.
template <class List, class Value>
bool contains(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace perfmodel
