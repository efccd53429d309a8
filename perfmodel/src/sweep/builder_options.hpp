#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "files/json_file.hpp"

namespace perfmodel::sweep {

/// A text, number, true or false as a flag takes it; none: something else.
std::optional<std::string> scalar_text(const Json& value);

/// Flags of a builder, without dashes, from a JSON object at `pointer`. Error: values that are no
/// scalars.
std::vector<std::pair<std::string, std::string>> builder_options(const Json& json,
                                                                 const std::string& pointer,
                                                                 std::optional<Error>& error);

}  // namespace perfmodel::sweep
