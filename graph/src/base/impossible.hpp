#pragma once

#include <fmt/format.h>

#include <string_view>

#include "perfmodel/result.hpp"

namespace perfmodel {

/// "expected X, found Y" of values that cannot be.
Unexpected impossible(std::string_view expected, const auto& found) {
  return fail(ErrorCode::kImpossible, fmt::format("expected {}, found {}", expected, found));
}

}  // namespace perfmodel
