#include "csv_text.hpp"

#include <fmt/format.h>

#include "json/csv_file.hpp"

namespace perfmodel::sweep {

std::string csv_cell(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return line.find_first_of(",\"#") == std::string::npos ? line : csv_quoted(line);
}

std::string key_text(std::string_view text) {
  std::string escaped;
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool special =
        byte < 0x20 || byte == 0x7f || c == '%' || c == ';' || c == ',' || c == '"' || c == '#';
    escaped += special ? fmt::format("%{:02X}", byte) : std::string(1, c);
  }
  return escaped;
}

}  // namespace perfmodel::sweep
