#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>

#include "perfmodel/result.hpp"

namespace perfmodel::serve {

/// A listening stream socket: a Unix one, mode 0600, whose file goes with it unless another took
/// its place; or one of TCP.
class Listener {
 public:
  static Result<Listener> open(const std::filesystem::path& path);
  /// `address`: "7000" (127.0.0.1), "10.0.0.5:7000", "[::1]:7000". Errors: no such address, one
  /// that is taken.
  static Result<Listener> open_tcp(const std::string& address);
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&&) = delete;
  ~Listener();

  int descriptor() const { return descriptor_; }
  int accept() const;  ///< -1: none, errno says why

 private:
  Listener() = default;
  int descriptor_ = -1;
  std::filesystem::path path_;
  ino_t inode_ = 0;
};

/// Who is at the other end of a connection: "user 1000", "10.0.0.7".
std::string peer_of(int socket);

}  // namespace perfmodel::serve
