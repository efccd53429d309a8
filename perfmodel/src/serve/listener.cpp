#include "listener.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

namespace perfmodel::serve {
namespace {

Unexpected io_error(const std::filesystem::path& path, std::string message) {
  return fail(ErrorCode::kIo, std::move(message), path);
}

// getaddrinfo takes 70000 for 4464.
bool is_port(const std::string& text) {
  constexpr int kLargest = 65535;
  int port = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), port);
  return failure == std::errc() && end == text.data() + text.size() && port > 0 && port <= kLargest;
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
  if (probe < 0) return io_error(path, "expected a socket, found: " + reason());
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
  PERFMODEL_TRY_TO(make_room(path, address));

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

Result<Listener> Listener::open_tcp(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  std::string host = colon == std::string::npos ? "127.0.0.1" : address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  const std::string port = colon == std::string::npos ? address : address.substr(colon + 1);
  addrinfo wanted{};
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (!is_port(port) || host.empty() ||
      getaddrinfo(host.c_str(), port.c_str(), &wanted, &found) != 0) {
    return decline(
        "--listen: expected PORT or ADDRESS:PORT in numbers, a port from 1 to 65535, found " +
        address);
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, &freeaddrinfo);
  Listener made;
  made.descriptor_ = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;  // a server that starts again gets its address back
  if (made.descriptor_ < 0 ||
      setsockopt(made.descriptor_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      bind(made.descriptor_, found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(made.descriptor_, SOMAXCONN) != 0) {
    return io_error(address, "expected an address to listen on, found: " + reason());
  }
  return made;
}

std::string peer_of(int socket) {
  sockaddr_storage other{};
  socklen_t length = sizeof other;
  char host[NI_MAXHOST];
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&other), &length) == 0 &&
      other.ss_family != AF_UNIX &&
      getnameinfo(reinterpret_cast<sockaddr*>(&other), length, host, sizeof host, nullptr, 0,
                  NI_NUMERICHOST) == 0) {
    return host;
  }
  ucred user{};
  socklen_t size = sizeof user;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &user, &size) != 0) return "unknown";
  return "user " + std::to_string(user.uid);
}

int Listener::accept() const {
  return accept4(descriptor_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

}  // namespace perfmodel::serve
