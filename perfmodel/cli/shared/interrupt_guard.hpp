#pragma once

namespace perfmodel::cli {

/// Takes Ctrl-C while it lives, so that a search ends with its best result so far; the second one
/// ends the program. Within a HostedRun signals belong to another program: its stop point ends the
/// search.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool interrupted();

 private:
  const bool hosted_;
};

}  // namespace perfmodel::cli
