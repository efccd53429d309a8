#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace perfmodel {

/// ASCII only: names of GPUs and topologies are looked up in any case.
inline std::string lower_case(std::string_view text) {
  std::string made(text);
  std::ranges::transform(made, made.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return made;
}

}  // namespace perfmodel
