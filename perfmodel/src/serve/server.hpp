#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>

#include "perfmodel/result.hpp"
#include "service.hpp"

namespace perfmodel::serve {

struct ServerOptions {
  /// Unix stream socket to listen on; empty: one client, on the file descriptors 0 and 1.
  std::filesystem::path socket = {};
  /// In place of the socket: TCP, "7000" (on 127.0.0.1) or "10.0.0.5:7000". A client's first line
  /// has to be {"op": "login", "token": ..} with `token`.
  std::string listen = {}, token = {};
  std::filesystem::path files = {};  ///< clients of the socket may load files below it; empty: none
  std::size_t threads = 1;  ///< threads that answer; 0: as many as the machine runs at once
  /// Further threads for costly requests (Service::is_costly), at low priority. Nothing: half as
  /// many as `threads`, and none in addition to one thread, so that answers stay in order.
  std::optional<std::size_t> costly_threads = {};
  std::size_t max_request = std::size_t{64} << 20;  ///< bytes of one line
  /// On the socket at once; fewer if the hard limit of descriptors allows fewer.
  std::size_t max_clients = 64;
  std::size_t max_connections = 0;  ///< that a user (Unix) or an address (TCP) may have; 0: any
  double max_rate = 0;  ///< requests per second and connection, after a first second's; 0: any
};

/// Carries lines between clients and a Service. One thread reads and writes, others answer. Answers
/// carry the request's id; with one thread each client gets them in the order of its requests.
/// Memory is bounded per client: a line that is being read, lines and answers of at most 32
/// requests, of which no more are read while more than 1 MiB of answers wait to be taken. Clients
/// that go away cost nothing: their requests are cancelled. Costly requests have threads of their
/// own, where clients take turns and none has all threads while others wait.
class Server {
 public:
  /// Opens the socket (mode 0600). A socket file without a listener is replaced. Errors: a living
  /// server, another kind of file or no folder at its path, a path that is too long.
  static Result<Server> open(Service& service, const ServerOptions& options);

  Server(Server&&) noexcept;
  Server& operator=(Server&&) = delete;
  ~Server();  ///< removes the socket file

  /// Serves until `stop()`, or until standard input ends: then nothing more is read, the requests
  /// so far are answered (a client that does not take answers has 5 s), and the socket file is
  /// removed. Error: answers cannot be written to standard output.
  Result<void> run();

  /// From any thread, or a signal handler.
  void stop() noexcept;

 private:
  struct State;
  explicit Server(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace perfmodel::serve
