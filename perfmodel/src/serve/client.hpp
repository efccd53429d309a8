#pragma once

#include <cstddef>
#include <optional>
#include <stop_token>
#include <string>

#include "service.hpp"

namespace perfmodel::serve {

/// A connection as the thread that reads and writes sees it: bytes in, lines out; answers in, bytes
/// out. Workers only read `caller`.
class Client {
 public:
  Client(int in, int out, bool is_socket, std::size_t max_request, Caller caller);
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
  void end_reading() { ended_ = true, input_.clear(), scanned_ = 0; }

  bool wants_reading() const;  ///< next_line() needs more bytes
  bool wants_writing() const { return output_.size() > written_; }
  bool is_done() const { return ended_ && in_work_ == 0 && input_.empty() && !wants_writing(); }
  bool is_idle() const { return in_work_ == 0 && !wants_writing(); }
  int in() const { return in_; }
  int out() const { return out_; }
  bool is_socket() const { return is_socket_; }
  const Caller& caller() const { return caller_; }

 private:
  bool may_ask() const;
  std::optional<Line> take(std::size_t size, bool with_newline);

  const int in_, out_;
  const bool is_socket_;
  const std::size_t max_request_;
  std::stop_source gone_;
  Caller caller_;

  std::string input_;        // not yet asked; lines begin at its front
  std::size_t scanned_ = 0;  // bytes of it without a newline
  bool skipping_ = false;    // to the end of a line that is too large
  bool ended_ = false;
  std::size_t in_work_ = 0;  // requests without an answer
  std::size_t in_work_bytes_ = 0;
  std::string output_;
  std::size_t written_ = 0;
};

}  // namespace perfmodel::serve
