#include "perfmodel/result.hpp"

#include <fmt/format.h>

namespace perfmodel {
namespace {

// Names come from files of strangers: whatever they hold, an error stays one line of some length,
// and moves no terminal's cursor.
constexpr std::size_t kLongestPart = 2000;

bool is_control(unsigned char c) { return c < 0x20 || c == 0x7F; }

std::string printable(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (shown.size() >= kLongestPart) return shown + "...";
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : ' ');
    if (c == '\n') {
      shown += "\\n";
    } else if (is_control(c)) {
      shown += fmt::format("\\x{:02x}", c);
    } else if (c == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080 to U+009F
      shown += fmt::format("\\u{:04x}", next);
      ++i;
    } else {
      shown += text[i];
    }
  }
  return shown;
}

}  // namespace

std::string to_string(const Error& error) {
  std::string text;
  if (!error.file.empty()) text += printable(error.file.string()) + ":";
  if (error.line > 0) text += fmt::format("{}:", error.line);
  if (error.line > 0 && error.column > 0) text += fmt::format("{}:", error.column);
  if (!text.empty()) text += ' ';
  if (!error.json_pointer.empty()) text += printable(error.json_pointer) + ": ";
  return text + printable(error.message);
}

}  // namespace perfmodel
