#pragma once

namespace perfmodel {

// ASCII only, whatever the locale.

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

constexpr bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace perfmodel
