#pragma once

#include <sys/types.h>

#include <filesystem>

#include "perfmodel/result.hpp"

namespace perfmodel::serve {

/// A listening Unix stream socket, mode 0600. Its file goes with it, unless another took its place.
class Listener {
 public:
  static Result<Listener> open(const std::filesystem::path& path);
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  int descriptor() const { return descriptor_; }
  int accept() const;  ///< -1: no client, or no descriptor left

 private:
  Listener() = default;
  int descriptor_ = -1;
  std::filesystem::path path_;
  ino_t inode_ = 0;
};

}  // namespace perfmodel::serve
