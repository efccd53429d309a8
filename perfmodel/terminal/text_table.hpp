#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/number_text.hpp"

namespace perfmodel::cli {

/// Lines of output are at most this wide.
inline constexpr std::size_t kLineWidth = 100;

/// Number of characters of UTF-8 text.
std::size_t text_width(std::string_view text);

/// At most `width` characters; what is cut ends in "…".
std::string shortened(std::string_view text, std::size_t width);

/// Breaks plain text at spaces and line breaks; every line starts with `indent` blanks, the first
/// one with `first` instead.
std::string wrapped(std::string_view text, std::string_view first, std::size_t indent,
                    std::size_t width = kLineWidth);

/// A heading and one item each; nothing without warnings.
std::string warnings_text(std::span<const std::string> warnings);

/// Aligned columns: the first to the left, as are those whose header starts with '<' (not printed);
/// the others, numbers, to the right.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> headers);
  TextTable(std::initializer_list<std::string> headers)
      : TextTable(std::vector<std::string>(headers)) {}
  /// Cells become plain text (graph/plain_text.hpp).
  void row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  /// The first column gives way where a line would exceed kLineWidth; columns without any text,
  /// header included, are left out.
  std::string text(bool bold) const;

 private:
  std::vector<std::string> headers_;
  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

/// Names and values as plain text, one pair per line; line breaks in values are blanks.
class TextList {
 public:
  void row(std::string_view name, std::string value);
  void fact(std::string_view name, std::string value);  ///< a row, unless the value is empty
  std::string text() const;

 private:
  std::vector<std::pair<std::string, std::string>> rows_;
};

}  // namespace perfmodel::cli
