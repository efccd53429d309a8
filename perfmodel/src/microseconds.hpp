#pragma once

#include <cstdint>

namespace perfmodel {

/// Stamps of traces are whole nanoseconds; everything computed from them is in microseconds.
inline double us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

}  // namespace perfmodel
