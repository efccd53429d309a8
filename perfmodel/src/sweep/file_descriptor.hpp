#pragma once

#include <unistd.h>

#include <utility>

namespace perfmodel::sweep {

/// Closes an open file, if there is one.
class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}
  FileDescriptor(FileDescriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~FileDescriptor() {
    if (number_ >= 0) ::close(number_);
  }
  operator int() const { return number_; }

 private:
  int number_;
};

}  // namespace perfmodel::sweep
