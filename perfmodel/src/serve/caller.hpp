#pragma once

#include <filesystem>
#include <stop_token>
#include <string>

namespace perfmodel::serve {

/// Who asks: which files may be opened for the answer.
struct Caller {
  bool any_file = false;              ///< the one who started the program, on its standard input
  std::filesystem::path folder = {};  ///< else files below it; empty: none
  std::string name = {};              ///< for the log: "user 1000"
  std::stop_token gone = {};          ///< no longer waits for the answer
};

}  // namespace perfmodel::serve
