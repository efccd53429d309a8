#pragma once

#include <filesystem>
#include <stop_token>

namespace perfmodel::serve {

/// Who asks: which files may be opened for the answer.
struct Caller {
  bool any_file = false;              ///< whoever started the program, on its standard input
  std::filesystem::path folder = {};  ///< else files below it; empty: none
  std::stop_token gone = {};          ///< nobody waits for the answer any more
};

}  // namespace perfmodel::serve
