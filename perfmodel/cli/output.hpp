#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "perfmodel/result.hpp"

namespace perfmodel::cli {

using Json = nlohmann::ordered_json;

/// Three decimals: nanoseconds, where the value is in microseconds. Infinite or no number: null.
Json rounded(double value);

/// Text in UTF-8, whatever bytes the strings hold.
std::string to_text(const Json& document);

/// Writes to stdout; an error if it cannot be written (a full disk).
Result<void> print(std::string_view text);

/// True if stdout is a terminal that takes bold print (and NO_COLOR is not set).
bool bold_allowed();

}  // namespace perfmodel::cli
