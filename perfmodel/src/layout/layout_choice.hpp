#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "perfmodel/result.hpp"

namespace perfmodel {

/// A word for a value.
template <class Value>
struct LayoutName {
  std::string_view name;
  Value value;
};

/// The value that `text` names. Errors (kUnknownName): another name; it lists the known ones.
template <class Value, std::size_t kCount>
Result<Value> layout_choice(std::string_view what, std::string_view text,
                            const LayoutName<Value> (&known)[kCount]) {
  std::vector<std::string_view> names;
  for (const auto& [name, value] : known) {
    if (name == text) return value;
    names.push_back(name);
  }
  return fail(ErrorCode::kUnknownName, fmt::format("{}: expected one of {}, found \"{}\"", what,
                                                   fmt::join(names, ", "), text));
}

}  // namespace perfmodel
