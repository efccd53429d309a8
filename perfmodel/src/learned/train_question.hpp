#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace perfmodel::training {

/// A fit as a command asks for it, in words.
struct TrainQuestion {
  std::vector<std::string> data;  ///< files and folders
  std::string rows = "all", family, note;
  std::uint64_t seed = 1;
  bool grid = false, no_validation = false;
};

}  // namespace perfmodel::training
