#pragma once

#include <cmath>
#include <span>
#include <string>

#include "perfmodel/result.hpp"

namespace perfmodel::parallel {

inline bool is_duration(double value) { return std::isfinite(value) && value >= 0; }

/// "expected <what> to be a finite number >= 0, found -1"
inline Unexpected not_a_duration(const std::string& what, double value) {
  return fail(ErrorCode::kImpossible,
              "expected " + what + " to be a finite number >= 0, found " + std::to_string(value));
}

}  // namespace perfmodel::parallel
