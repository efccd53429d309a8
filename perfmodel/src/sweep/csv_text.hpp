#pragma once

#include <string>
#include <string_view>

namespace perfmodel::sweep {

/// A cell as RFC 4180 has it, on one line: line ends become blanks.
std::string csv_cell(std::string_view text);

/// Text without the bytes that have a meaning in keys or cells: %XX stands for them.
std::string key_text(std::string_view text);

}  // namespace perfmodel::sweep
