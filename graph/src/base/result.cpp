#include "perfmodel/result.hpp"

#include <fmt/format.h>

#include "plain_text.hpp"
#include "secrets.hpp"

namespace perfmodel {
namespace {

// The name stays whole where it can: who cannot tell the file cannot mend it.
std::string shown_file(const std::filesystem::path& file) {
  const std::string name = plain_text(file.string());
  return name.size() <= kLongestMessage ? name : shown_text(name, kLongestMessage);
}

}  // namespace

// Names and quoted text come from files of strangers: whatever they hold, an error stays one line
// of some length, moves no terminal's cursor and tells no secret.
std::string to_string(const Error& error) {
  std::string text;
  if (!error.file.empty()) text += shown_file(error.file) + ":";
  if (error.line > 0) text += fmt::format("{}:", error.line);
  if (error.line > 0 && error.column > 0) text += fmt::format("{}:", error.column);
  if (!text.empty()) text += ' ';
  if (!error.json_pointer.empty()) text += shown_text(error.json_pointer, kLongestMessage) + ": ";
  return text + shown_text(error.message, kLongestMessage);
}

}  // namespace perfmodel
