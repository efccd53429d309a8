#pragma once

#include <filesystem>
#include <type_traits>

#include "perfmodel/detail/output_file.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::cli {

/// Writes the text that `make` gives to a file that a flag asks for; without a name nothing is
/// made. Errors: from `make` and `write_file`.
template <class Make>
Result<void> write_asked(const std::filesystem::path& file, Make&& make) {
  if (file.empty()) return {};
  const auto text = make();
  if constexpr (std::is_convertible_v<decltype(text), std::string_view>) {
    return write_file(file, text);
  } else {
    if (!text) return Unexpected{text.error()};
    return write_file(file, *text);
  }
}

}  // namespace perfmodel::cli
