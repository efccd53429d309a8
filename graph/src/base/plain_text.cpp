#include "plain_text.hpp"

#include <cstddef>
#include <cstdint>

namespace perfmodel {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: no UTF-8
};

std::uint8_t byte_at(std::string_view text, std::size_t i) {
  return i < text.size() ? static_cast<std::uint8_t>(text[i]) : 0;  // 0 continues nothing
}

// Returns the first character of text that is not empty.
Character first_character(std::string_view text) {
  const std::uint8_t lead = byte_at(text, 0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const std::size_t bytes = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  std::uint32_t code = lead & (0x7Fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    const std::uint8_t next = byte_at(text, i);
    if ((next & 0xC0) != 0x80) return {};
    code = code << 6 | (next & 0x3Fu);
  }
  const bool overlong = (bytes == 3 && code < 0x800) || (bytes == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  if (overlong || surrogate || code > 0x10FFFF) return {};
  return {code, bytes};
}

bool may_be_shown(std::uint32_t code) {
  const auto within = [code](std::uint32_t first, std::uint32_t last) {
    return code >= first && code <= last;
  };
  return code >= 0x20 && !within(0x7F, 0x9F) && code != 0x61C && !within(0x200B, 0x200F) &&
         !within(0x2028, 0x202E) && !within(0x2060, 0x2069) && code != 0xFEFF;
}

// Bytes in front of the first character that may not be shown.
std::size_t plain_length(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (text[at] >= ' ' && text[at] < 0x7F) {  // most text
      ++at;
      continue;
    }
    const Character character = first_character(text.substr(at));
    if (character.bytes == 0 || !may_be_shown(character.code)) return at;
    at += character.bytes;
  }
  return at;
}

}  // namespace

std::string plain_text(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (;;) {
    const std::size_t length = plain_length(text);
    plain += text.substr(0, length);
    text.remove_prefix(length);
    if (text.empty()) return plain;
    plain += '?';
    const std::size_t bytes = first_character(text).bytes;
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
}

bool is_plain_text(std::string_view text) { return plain_length(text) == text.size(); }

}  // namespace perfmodel
