#include "request_log.hpp"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <system_error>

#include "answers.hpp"

namespace perfmodel::serve {

Result<void> RequestLog::open(const std::filesystem::path& file) {
  file_ = std::make_unique<Descriptor>(
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (file_->number() >= 0) return {};
  const std::string reason = std::generic_category().message(errno);
  file_.reset();
  return fail(ErrorCode::kIo, "expected a file for the log of requests, found: " + reason, file);
}

void RequestLog::add(const Entry& entry) noexcept {
  if (!file_) return;
  try {
    const auto now =
        std::chrono::time_point_cast<std::chrono::seconds>(std::chrono::system_clock::now());
    const Json json = {{"time", fmt::format("{:%FT%TZ}", fmt::gmtime(now))},
                       {"client", entry.peer},
                       {"op", entry.op},
                       {"error", entry.code.empty() ? Json(nullptr) : Json(entry.code)},
                       {"us", std::llround(entry.took_us)},
                       {"bytes", entry.bytes}};
    const std::string line = json_line(json) + '\n';
    if (::write(file_->number(), line.data(), line.size()) == static_cast<ssize_t>(line.size())) {
      return;
    }
  } catch (...) {  // no memory for the line
  }
  ++lost_;
}

}  // namespace perfmodel::serve
