#include "client.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <utility>

namespace perfmodel::serve {
namespace {

constexpr std::size_t kInWork = 32;
constexpr std::size_t kWaitingBytes = std::size_t{1} << 20;
constexpr std::size_t kReadBytes = std::size_t{1} << 16;

bool try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

Client::Client(ClientSocket socket, const ClientLimits& limits, Caller caller)
    : socket_(std::move(socket)), limits_(limits), caller_(std::move(caller)) {
  caller_.gone = gone_.get_token();
}

Client::~Client() {
  if (is_socket()) close(in());
}

bool Client::may_ask() const {
  return in_work_ < kInWork && in_work_bytes_ <= limits_.max_request &&
         output_.size() - written_ < kWaitingBytes && may_ask_from() <= Clock::now();
}

bool Client::wants_reading() const { return !ended_ && may_ask() && scanned_ == input_.size(); }

std::optional<Client::Line> Client::take(std::size_t size, bool with_newline) {
  Line line;
  const std::size_t used = size + (with_newline ? 1 : 0);
  line.is_too_large = size > limits_.max_request;
  if (!line.is_too_large) line.text.assign(input_, 0, size);
  if (used == input_.size() && input_.capacity() > 4 * kReadBytes) {
    input_ = {};  // a large line's memory is not kept
  } else {
    input_.erase(0, used);
  }
  scanned_ = 0;
  ++in_work_;
  if (limits_.max_rate > 0) {
    constexpr double kLongest = 1e6;  // seconds: a rate may be next to nothing
    const std::chrono::duration<double> each{std::min(kLongest, 1 / limits_.max_rate)};
    earned_ = std::max(earned_, Clock::now()) + std::chrono::ceil<Clock::duration>(each);
  }
  in_work_bytes_ += line.text.size();
  return line;
}

std::optional<Client::Line> Client::next_line() {
  if (!may_ask()) return std::nullopt;
  const std::size_t end = input_.find('\n', scanned_);
  if (skipping_) {
    if (end == std::string::npos) {
      input_.clear();
      scanned_ = 0;
      return std::nullopt;
    }
    skipping_ = false;
    input_.erase(0, end + 1);
    scanned_ = 0;
    return next_line();
  }
  if (end != std::string::npos) return take(end, true);
  scanned_ = input_.size();
  if (scanned_ > limits_.max_request) {
    skipping_ = !ended_;
    return take(scanned_, false);
  }
  if (ended_ && !input_.empty()) return take(scanned_, false);
  return std::nullopt;
}

void Client::add_answer(std::string line) {
  --in_work_;
  if (in_work_ == 0) in_work_bytes_ = 0;
  if (line.empty()) return;  // no memory for an answer
  if (written_ == output_.size()) {
    output_.clear();
    if (output_.capacity() > 4 * kWaitingBytes) output_.shrink_to_fit();
    written_ = 0;
  }
  output_ += line;
  output_ += '\n';
}

bool Client::read() {
  std::array<char, kReadBytes> buffer;
  const ssize_t count = is_socket() ? recv(in(), buffer.data(), buffer.size(), MSG_DONTWAIT)
                                    : ::read(in(), buffer.data(), buffer.size());
  if (count < 0) return try_again();
  if (count == 0) ended_ = true;
  input_.append(buffer.data(), static_cast<std::size_t>(count));
  return true;
}

bool Client::write() {
  const char* from = output_.data() + written_;
  const std::size_t left = output_.size() - written_;
  // A pipe that is ready takes so many bytes without blocking.
  const ssize_t count = is_socket() ? send(out(), from, left, MSG_DONTWAIT | MSG_NOSIGNAL)
                                    : ::write(out(), from, std::min<std::size_t>(left, PIPE_BUF));
  if (count < 0) return try_again();
  written_ += static_cast<std::size_t>(count);
  if (written_ == output_.size()) {
    output_.clear();
    written_ = 0;
  } else if (written_ > kWaitingBytes) {
    output_.erase(0, written_);
    written_ = 0;
  }
  return true;
}

void Client::drop() { gone_.request_stop(); }

}  // namespace perfmodel::serve
