#pragma once

#include <cstddef>
#include <string_view>

namespace perfmodel {

/// The name of a value; `names` are in the order of its type.
template <std::size_t kCount, class Enum>
constexpr std::string_view enum_name(const std::string_view (&names)[kCount], Enum value) {
  const auto place = static_cast<std::size_t>(value);
  return place < kCount ? names[place] : "unknown";
}

}  // namespace perfmodel
