#include "listener.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace perfmodel::serve {
namespace {

Unexpected io_error(const std::filesystem::path& path, std::string message) {
  return Unexpected{Error{.code = ErrorCode::kIo, .message = std::move(message), .file = path}};
}

std::string reason() { return std::generic_category().message(errno); }

ino_t inode_of(const char* path) {
  struct stat found {};
  return lstat(path, &found) == 0 ? found.st_ino : 0;
}

// Removes a socket without a listener.
Result<void> make_room(const std::filesystem::path& path, const sockaddr_un& address) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) return {};
  if (!S_ISSOCK(found.st_mode)) {
    return io_error(path, "expected a socket or nothing, found something else");
  }
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int answer =
      connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 ? 0 : errno;
  close(probe);
  if (answer != ECONNREFUSED) {
    return io_error(path, "expected a socket without a server, found a living server");
  }
  unlink(path.c_str());
  return {};
}

}  // namespace

Result<Listener> Listener::open(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& name = path.native();
  if (name.size() >= sizeof address.sun_path) {
    return io_error(path, "expected a path of at most " +
                              std::to_string(sizeof address.sun_path - 1) + " bytes for a socket");
  }
  std::memcpy(address.sun_path, name.data(), name.size());
  if (auto room = make_room(path, address); !room) return Unexpected{room.error()};

  Listener made;
  made.descriptor_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (made.descriptor_ < 0) return io_error(path, "expected a socket, found: " + reason());
  const mode_t mask = umask(0177);  // no moment in which others may connect
  const bool bound =
      bind(made.descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  umask(mask);
  if (!bound) return io_error(path, "expected a folder for the socket, found: " + reason());
  made.path_ = path;
  made.inode_ = inode_of(path.c_str());
  // Crowds that come at once wait for `accept`, as many as the system lets them.
  if (listen(made.descriptor_, SOMAXCONN) != 0) {
    return io_error(path, "expected a socket to listen on, found: " + reason());
  }
  return made;
}

Listener::Listener(Listener&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      path_(std::move(other.path_)),
      inode_(std::exchange(other.inode_, 0)) {}

Listener::~Listener() {
  if (descriptor_ < 0) return;
  if (inode_ != 0 && inode_of(path_.c_str()) == inode_) unlink(path_.c_str());
  close(descriptor_);
}

int Listener::accept() const {
  return accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

}  // namespace perfmodel::serve
