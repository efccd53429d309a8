#pragma once

#include <algorithm>
#include <utility>

namespace perfmodel {

/// Whether a short list, looked through from its front, has a value.
template <class List, class Value>
bool contains(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// Appends a value that the list does not have yet.
template <class List, class Value>
void add_once(List& list, Value&& value) {
  if (!contains(list, value)) list.push_back(std::forward<Value>(value));
}

/// Appends the values that the list does not have yet, each once.
template <class List, class Values>
void add_each_once(List& list, const Values& values) {
  for (const auto& value : values) add_once(list, value);
}

}  // namespace perfmodel
