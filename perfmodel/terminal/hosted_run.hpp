#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/progress_bar.hpp"

namespace perfmodel::cli {

/// A command that another program asks for within its own process. While it lives, what this thread
/// prints is kept instead, no progress is shown, and the signals stay the other program's.
class HostedRun {
 public:
  /// `most_bytes`: of what is printed; 0: any number.
  explicit HostedRun(std::size_t most_bytes = 0);
  ~HostedRun();
  HostedRun(const HostedRun&) = delete;
  HostedRun& operator=(const HostedRun&) = delete;

  /// The run of this thread; nullptr: the command is the program's own.
  static HostedRun* current();

  std::string printed;
  std::vector<std::string> complaints;  ///< lines for standard error
  const std::size_t most_bytes;

 private:
  HostedRun* const outer_;
  const QuietProgress quiet_;
};

}  // namespace perfmodel::cli
