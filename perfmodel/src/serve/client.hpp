#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>

#include "service.hpp"

namespace perfmodel::serve {

/// Descriptors to read and write, and who is at the other end.
struct ClientSocket {
  int in = -1, out = -1;
  bool is_socket = false;  ///< then both are one, which the client closes
  std::string peer = {};   ///< "user 1000", "127.0.0.1"
};

struct ClientLimits {
  std::size_t max_request = 0;  ///< bytes of a line
  double max_rate = 0;          ///< requests per second; 0: any
};

/// A connection as the thread that reads and writes sees it: bytes in, lines out; answers in, bytes
/// out. Workers only read `caller`.
class Client {
 public:
  using Clock = std::chrono::steady_clock;

  Client(ClientSocket socket, const ClientLimits& limits, Caller caller);
  ~Client();  ///< closes a socket
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  /// A request: a line, or that there was one which is too large.
  struct Line {
    std::string text;
    bool is_too_large = false;
  };

  /// The next whole line, if there is one and the client may have more in work. Empty lines count.
  std::optional<Line> next_line();
  void add_answer(std::string line);

  /// Reads the bytes that have arrived, some kB. False: the client is gone.
  bool read();
  /// Writes as much as the client takes. False: the client is gone.
  bool write();
  /// Cancels its running requests.
  void drop();
  /// Until then only a login counts; from then on its lines may be so long.
  void trust(std::size_t max_request) { limits_.max_request = max_request, trusted_ = true; }
  bool is_trusted() const { return trusted_; }
  Clock::time_point connected() const { return connected_; }
  void end_reading() { ended_ = true, input_.clear(), scanned_ = 0; }

  bool wants_reading() const;  ///< next_line() needs more bytes
  bool wants_writing() const { return output_.size() > written_; }
  bool is_done() const { return ended_ && in_work_ == 0 && input_.empty() && !wants_writing(); }
  bool is_idle() const { return in_work_ == 0 && !wants_writing(); }
  /// When its rate lets it ask again; the past if that is now.
  Clock::time_point may_ask_from() const { return earned_ - std::chrono::seconds(1); }
  int in() const { return socket_.in; }
  int out() const { return socket_.out; }
  bool is_socket() const { return socket_.is_socket; }
  const std::string& peer() const { return socket_.peer; }
  const Caller& caller() const { return caller_; }

 private:
  bool may_ask() const;
  std::optional<Line> take(std::size_t size, bool with_newline);

  const ClientSocket socket_;
  ClientLimits limits_;
  bool trusted_ = false;
  const Clock::time_point connected_ = Clock::now();
  std::stop_source gone_;
  Caller caller_;

  std::string input_;        // not yet asked; lines begin at its front
  std::size_t scanned_ = 0;  // bytes of it without a newline
  bool skipping_ = false;    // to the end of a line that is too large
  bool ended_ = false;
  std::size_t in_work_ = 0;  // requests without an answer
  std::size_t in_work_bytes_ = 0;
  Clock::time_point earned_ = {};  // until then its requests so far use up its rate
  std::string output_;
  std::size_t written_ = 0;
};

}  // namespace perfmodel::serve
