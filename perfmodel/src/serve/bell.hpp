#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "descriptor.hpp"

namespace perfmodel::serve {

/// An eventfd: wakes a thread that polls.
class Bell {
 public:
  void ring() const noexcept {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(descriptor(), &one, sizeof one);
  }
  /// False: it cannot be read, and would ring for good.
  bool silence() const noexcept {
    std::uint64_t count = 0;
    return ::read(descriptor(), &count, sizeof count) > 0 || errno == EAGAIN;
  }
  int descriptor() const { return descriptor_.number(); }  ///< -1: the system has none left

 private:
  Descriptor descriptor_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

}  // namespace perfmodel::serve
