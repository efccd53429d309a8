#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

/// Values that texts name: the kinds of an optimizer, the types of a precision.
namespace perfmodel {

template <class Value>
struct Named {
  std::string_view name;
  Value value;
};

/// Returns nullptr if no value has the name.
template <class Value, std::size_t kCount>
constexpr const Value* find_named(const Named<Value> (&values)[kCount], std::string_view name) {
  for (const Named<Value>& one : values) {
    if (one.name == name) return &one.value;
  }
  return nullptr;
}

/// None: no value has this name.
template <class Value, std::size_t kCount>
std::optional<Value> value_in(const Named<Value> (&known)[kCount], std::string_view name) {
  const Value* value = find_named(known, name);
  return value ? std::optional(*value) : std::nullopt;
}

/// The first name of a value.
template <class Value, std::size_t kCount>
constexpr std::string_view name_of(const Named<Value> (&values)[kCount], const Value& value) {
  for (const Named<Value>& one : values) {
    if (one.value == value) return one.name;
  }
  return {};
}

template <class Value, std::size_t kCount>
std::vector<std::string_view> names_of(const Named<Value> (&values)[kCount]) {
  std::vector<std::string_view> names;
  for (const Named<Value>& one : values) names.push_back(one.name);
  return names;
}

}  // namespace perfmodel
