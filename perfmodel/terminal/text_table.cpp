#include "text_table.hpp"

#include <algorithm>

#include "base/kernel_words.hpp"
#include "base/plain_text.hpp"

namespace perfmodel::cli {
namespace {

constexpr std::string_view kIndent = "  ";
constexpr std::size_t kMinNameWidth = 16;

bool starts_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) != 0x80; }

std::string padded(const std::string& text, std::size_t width, bool left) {
  const std::size_t own = text_width(text);
  const std::string blanks(own < width ? width - own : 0, ' ');
  return left ? text + blanks : blanks + text;
}

// Notes and warnings may be of several lines; these are broken anew.
std::string one_line(std::string_view text) {
  std::string line(text);
  std::ranges::replace(line, '\n', ' ');
  return plain_text(line);
}

// Names of kernels lose first what most of them share.
std::string shortened_name(const std::string& text, std::size_t width) {
  const bool is_long_kernel = text_width(text) > width && text.find("::") != text.npos;
  return shortened(is_long_kernel ? without_scopes(text) : text, width);
}

}  // namespace

std::size_t text_width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

std::string shortened(std::string_view text, std::size_t width) {
  if (text_width(text) <= width) return std::string(text);
  std::size_t bytes = 0, characters = 0;
  while (bytes < text.size()) {
    if (starts_character(text[bytes]) && ++characters == width) break;
    ++bytes;
  }
  return std::string(text.substr(0, bytes)) + "…";
}

std::string wrapped(std::string_view text, std::string_view first, std::size_t indent,
                    std::size_t width) {
  const std::string clean = one_line(text);
  text = clean;
  std::string lines, line(first);
  bool empty = true;
  while (!text.empty()) {
    const std::size_t space = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(std::min(space + 1, text.size()));
    if (word.empty()) continue;
    if (!empty && text_width(line) + 1 + text_width(word) > width) {
      lines += line + "\n";
      line = std::string(indent, ' ');
      empty = true;
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  return lines + line + "\n";
}

std::string warnings_text(std::span<const std::string> warnings) {
  std::string text = warnings.empty() ? "" : "\n  Warnings\n";
  for (const std::string& warning : warnings) text += wrapped(warning, "  - ", 4);
  return text;
}

TextTable::TextTable(std::vector<std::string> headers) {
  for (std::string& header : headers) {
    const bool left = headers_.empty() || header.starts_with('<');
    if (header.starts_with('<')) header.erase(0, 1);
    headers_.push_back(plain_text(header));
    left_.push_back(left);
  }
}

void TextTable::row(std::vector<std::string> cells) {
  for (std::string& cell : cells) cell = plain_text(cell);
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(bool bold) const {
  std::vector<std::size_t> widths;
  for (const auto& header : headers_) widths.push_back(text_width(header));
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], text_width(row[i]));
  }
  std::size_t others = kIndent.size();
  for (std::size_t i = 1; i < widths.size(); ++i) others += widths[i] > 0 ? 2 + widths[i] : 0;
  const std::size_t room =
      others + kMinNameWidth < kLineWidth ? kLineWidth - others : kMinNameWidth;
  widths[0] = std::min(widths[0], room);
  const auto line_of = [&](const std::vector<std::string>& cells) {
    std::string line(kIndent);
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (widths[i] == 0) continue;  // an empty column
      if (i > 0) line += "  ";
      const std::string cell =
          i == 0 ? shortened_name(cells[i], widths[i]) : shortened(cells[i], widths[i]);
      line += padded(cell, widths[i], left_[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
  };
  std::string text = bold ? "\033[1m" + line_of(headers_) + "\033[0m\n" : line_of(headers_) + "\n";
  for (const auto& row : rows_) text += line_of(row) + "\n";
  return text;
}

void TextList::row(std::string_view name, std::string value) {
  rows_.emplace_back(plain_text(name), std::move(value));
}

void TextList::fact(std::string_view name, std::string value) {
  if (!value.empty()) row(name, std::move(value));
}

std::string TextList::text() const {
  std::size_t width = 0;
  for (const auto& [name, value] : rows_) width = std::max(width, text_width(name));
  std::string text;
  for (const auto& [name, value] : rows_) {
    const std::string first = std::string(kIndent) + padded(name, width, true) + "  ";
    text += wrapped(value, first, text_width(first));
  }
  return text;
}

}  // namespace perfmodel::cli
