#pragma once

#include <cstddef>

namespace perfmodel {

/// Position just past the container that starts at `begin`, or nullptr if it does not end before
/// `end` or has more than `nesting` brackets within brackets, the first of which is `too_deep`. The
/// 64 bytes after `end` must be readable. Brackets inside strings do not count.
const char* find_container_end(const char* begin, const char* end,
                               std::size_t nesting = std::size_t{1} << 62,
                               const char** too_deep = nullptr);

}  // namespace perfmodel
