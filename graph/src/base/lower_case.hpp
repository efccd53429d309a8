#pragma once

namespace perfmodel {

/// ASCII only. Not std::tolower, a call per character: names of kernels are long, and there is one
/// per event.
constexpr char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

}  // namespace perfmodel
