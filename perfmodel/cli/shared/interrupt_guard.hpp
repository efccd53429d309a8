#pragma once

#include <csignal>
#include <utility>
#include <vector>

namespace perfmodel::cli {

/// Takes Ctrl-C while it lives, so that a search ends with its best result so far; a second signal
/// ends the program at once. Within a HostedRun signals belong to another program: its stop point
/// ends the search.
class InterruptGuard {
 public:
  /// `and_terminate`: takes SIGTERM, too.
  explicit InterruptGuard(bool and_terminate = false);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool interrupted();

 private:
  std::vector<std::pair<int, struct sigaction>> previous_;
};

}  // namespace perfmodel::cli
