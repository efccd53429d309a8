#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include "files/json_file.hpp"

namespace perfmodel {

/// "\"a\", \"b\" or \"c\"", for messages.
template <std::size_t kCount>
std::string one_of(const std::string_view (&names)[kCount]) {
  std::string text;
  for (std::size_t i = 0; i < kCount; ++i) {
    text += (i == 0 ? "\"" : i + 1 == kCount ? " or \"" : ", \"") + std::string(names[i]) + "\"";
  }
  return text;
}

/// Place of a string among the allowed ones; 0 after an error.
template <std::size_t kCount>
std::size_t choice(ObjectReader& reader, const char* key, const std::string_view (&names)[kCount]) {
  const std::string text = reader.string(key);
  const auto* at = std::ranges::find(names, text);
  if (at != std::end(names)) return static_cast<std::size_t>(at - names);
  reader.reject(key, one_of(names));
  return 0;
}

/// As `choice`, for names that may be newer than this program: if the object has a key `like`, its
/// choice replaces an unknown name, which then goes to `unknown`.
template <std::size_t kCount>
std::size_t choice_or_like(ObjectReader& reader, const char* key,
                           const std::string_view (&names)[kCount], std::string& unknown) {
  if (!reader.has("like")) return choice(reader, key, names);
  const std::size_t like = choice(reader, "like", names);
  std::string text = reader.plain_name(key);
  const auto* at = std::ranges::find(names, text);
  if (at != std::end(names)) return static_cast<std::size_t>(at - names);
  unknown = std::move(text);
  return like;
}

}  // namespace perfmodel
