#include "perfmodel/result.hpp"

#include <fmt/format.h>

namespace perfmodel {

std::string to_string(const Error& error) {
  std::string text;
  if (!error.file.empty()) text += error.file.string() + ":";
  if (error.line > 0) text += fmt::format("{}:", error.line);
  if (error.line > 0 && error.column > 0) text += fmt::format("{}:", error.column);
  if (!text.empty()) text += ' ';
  if (!error.json_pointer.empty()) text += error.json_pointer + ": ";
  return text + error.message;
}

}  // namespace perfmodel
