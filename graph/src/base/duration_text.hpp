#pragma once

#include <optional>
#include <string_view>
#include <utility>

namespace perfmodel {

/// "5.1ms" or "5.1 ms" is 5.1 and "ms"; none: no number above 0 comes first, or nothing follows it.
std::optional<std::pair<double, std::string_view>> number_and_unit(std::string_view text);

/// A time with its unit in microseconds: "5.1ms"; none: no time above 0.
std::optional<double> read_duration_us(std::string_view text);

}  // namespace perfmodel
