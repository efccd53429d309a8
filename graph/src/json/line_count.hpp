#pragma once

#include <cstdint>

namespace perfmodel {

/// Line breaks in [begin, end). Every byte of a file is counted so, since a reader that meets an
/// error later has the text no more.
std::uint64_t count_lines(const char* begin, const char* end);

}  // namespace perfmodel
