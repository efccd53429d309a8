#pragma once

#include <ctime>

namespace perfmodel {

/// Seconds of processor time that this thread has taken. What a search does in so many of them does
/// not depend on what else the machine does.
inline double thread_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace perfmodel
