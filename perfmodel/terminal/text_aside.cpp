#include "text_aside.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace perfmodel::cli {
namespace {

constexpr std::size_t kMostInMemory = std::size_t{16} << 20, kReadPiece = std::size_t{1} << 18;

std::filesystem::path temporary_folder() {
  std::error_code none;
  const auto folder = std::filesystem::temp_directory_path(none);
  return none ? std::filesystem::path("/tmp") : folder;
}

Unexpected aside_error(std::string_view what) {
  return fail(ErrorCode::kIo,
              fmt::format("cannot keep the prices here until all are made: {}", what),
              temporary_folder());
}

/// -1 and errno if there can be none.
int open_unnamed() {
  const std::string folder = temporary_folder().string();
  int descriptor = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor >= 0) return descriptor;
  std::string name = folder + "/perfpredict.XXXXXX";  // a file system without such files
  descriptor = ::mkostemp(name.data(), O_CLOEXEC);
  if (descriptor >= 0) ::unlink(name.c_str());
  return descriptor;
}

}  // namespace

TextAside::TextAside(TextAside&& other) noexcept
    : text_(std::move(other.text_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

TextAside& TextAside::operator=(TextAside&& other) noexcept {
  std::swap(text_, other.text_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

TextAside::~TextAside() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

Result<void> TextAside::write(std::string_view text) {
  if (descriptor_ < 0 && text_.size() + text.size() <= kMostInMemory) {
    text_ += text;
    return {};
  }
  if (descriptor_ < 0) descriptor_ = open_unnamed();
  if (descriptor_ < 0) return aside_error(std::strerror(errno));
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      return aside_error(std::strerror(errno));
    }
  }
  return {};
}

Result<void> TextAside::each_piece(
    const std::function<Result<void>(std::string_view)>& take) const {
  if (!text_.empty()) PERFMODEL_TRY_TO(take(text_));
  if (descriptor_ < 0) return {};
  std::string piece(kReadPiece, '\0');
  for (off_t at = 0;;) {
    const ssize_t count = ::pread(descriptor_, piece.data(), piece.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return aside_error(std::strerror(errno));
    if (count == 0) return {};
    at += count;
    PERFMODEL_TRY_TO(take({piece.data(), static_cast<std::size_t>(count)}));
  }
}

}  // namespace perfmodel::cli
