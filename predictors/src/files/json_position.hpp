#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "perfmodel/result.hpp"

/// Positions of values in the text of a valid JSON document.
namespace perfmodel {

/// Offset of the value that a pointer (RFC 6901) names; where there is none, of the innermost value
/// on the way to it.
std::size_t find_json_pointer(std::string_view text, std::string_view pointer);

/// Offset of the n-th key, from 1.
std::size_t find_json_key(std::string_view text, std::size_t number);

/// Offset of the first character that no JSON document can have there; nothing: the text is one.
std::optional<std::size_t> find_json_defect(std::string_view text);

/// A key as pointers have it: "a/b" is "a~1b".
std::string json_token(std::string_view key);

/// Line and column of an offset.
void set_position(Error& error, std::size_t offset, std::string_view text);

}  // namespace perfmodel
