#pragma once

#include <span>
#include <string>
#include <vector>

#include "perfmodel/memory.hpp"

namespace perfmodel {

struct DrawnPurpose {
  std::size_t purpose = 0;  ///< index of MemoryPoint::bytes
  std::string name;         ///< "weights, all the step"
};

/// The purposes of a curve as a stacked drawing has them from below: first those that never change.
std::vector<DrawnPurpose> drawn_purposes(std::span<const MemoryPoint> curve);

}  // namespace perfmodel
