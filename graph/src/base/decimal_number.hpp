#pragma once

#include <charconv>
#include <string_view>
#include <system_error>

namespace perfmodel {

/// Reads a number of decimal digits: "064" is 64, and "0x40", "0b1", "1_000" and "" are none.
template <class Number>
bool read_decimal(std::string_view text, Number& number) noexcept {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace perfmodel
