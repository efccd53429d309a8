#include "byte_source.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <optional>

namespace perfmodel {
namespace {

constexpr std::size_t kRawBytes = std::size_t{1} << 18;
constexpr std::size_t kLargestRead = std::size_t{1} << 20;  // keeps progress alive
constexpr std::uint64_t kInflationFloor = std::uint64_t{64} << 20;
constexpr unsigned char kMagic[] = {0x1f, 0x8b};

}  // namespace

struct ByteSource::State {
  std::string_view text;  // the rest of a buffer; `file` is -1 then
  int file = -1;
  bool owns_file = false;
  std::function<void(std::uint64_t, std::uint64_t)> progress;
  std::uint64_t raw_size = 0, raw_bytes = 0, bytes = 0, most_inflation = 0;

  // Raw bytes that were read and not yet used: [begin, end) of `raw`.
  std::unique_ptr<unsigned char[]> raw;
  std::size_t begin = 0, end = 0;
  bool raw_ended = false;

  enum class Kind { kUnknown, kPlain, kGzip, kBetweenMembers } kind = Kind::kUnknown;
  z_stream inflater = {};
  bool inflater_made = false;
  std::optional<Error> failure;

  State() = default;
  State(const State&) = delete;
  ~State() {
    if (inflater_made) inflateEnd(&inflater);
    if (owns_file && file >= 0) ::close(file);
  }

  void fail_with(ErrorCode code, std::string message) {
    failure = Error{.code = code, .message = std::move(message)};
  }

  // One read of the file; 0 at its end and after a failure.
  std::size_t read_raw(void* to, std::size_t room) {
    ssize_t count = 0;
    do {
      count = ::read(file, to, std::min(room, kLargestRead));
    } while (count < 0 && errno == EINTR);
    if (count < 0) {
      fail_with(ErrorCode::kIo, fmt::format("cannot read: {}", std::strerror(errno)));
      count = 0;
    }
    raw_ended = count == 0;
    raw_bytes += static_cast<std::uint64_t>(count);
    if (progress && count > 0) progress(raw_bytes, raw_size);
    return static_cast<std::size_t>(count);
  }

  // Makes at least `count` raw bytes available, unless the file ends before.
  bool require(std::size_t count) {
    while (end - begin < count && !raw_ended) {
      std::memmove(raw.get(), raw.get() + begin, end - begin);
      end -= begin;
      begin = 0;
      end += read_raw(raw.get() + end, kRawBytes - end);
    }
    return end - begin >= count;
  }

  bool at_magic() { return require(2) && std::memcmp(raw.get() + begin, kMagic, 2) == 0; }

  void find_kind() {
    raw = std::make_unique_for_overwrite<unsigned char[]>(kRawBytes);
    if (!at_magic()) {
      kind = Kind::kPlain;
      return;
    }
    if (inflateInit2(&inflater, 15 + 16) != Z_OK) throw std::bad_alloc();
    inflater_made = true;
    kind = Kind::kGzip;
  }

  std::size_t read_plain(char* to, std::size_t room) {
    std::size_t done = std::min(room, end - begin);
    std::memcpy(to, raw.get() + begin, done);
    begin += done;
    while (done < room && !raw_ended) done += read_raw(to + done, room - done);
    return done;
  }

  // A member is followed by another one, by zeros (padding of tapes and block devices) or by the
  // end.
  void next_member() {
    if (at_magic()) {
      inflateReset(&inflater);
      kind = Kind::kGzip;
      return;
    }
    while (require(1) && raw[begin] == 0) ++begin;
    if (begin == end || failure) return;
    fail_with(ErrorCode::kSyntax,
              fmt::format("expected the end of the gzip data, found other data after it, at byte "
                          "{} of the file",
                          raw_bytes - (end - begin)));
  }

  std::size_t read_gzip(char* to, std::size_t room) {
    std::size_t done = 0;
    while (done < room && !failure) {
      if (kind == Kind::kBetweenMembers) {
        next_member();
        if (kind == Kind::kBetweenMembers) break;
      }
      if (!require(1)) {
        if (!failure) {
          fail_with(ErrorCode::kSyntax, "expected more gzip data, found the end of the file");
        }
        break;
      }
      inflater.next_in = raw.get() + begin;
      inflater.avail_in = static_cast<uInt>(end - begin);
      inflater.next_out = reinterpret_cast<Bytef*>(to + done);
      inflater.avail_out = static_cast<uInt>(std::min(room - done, kLargestRead));
      const auto offered = inflater.avail_out;
      const int code = inflate(&inflater, Z_NO_FLUSH);
      begin = end - inflater.avail_in;
      done += offered - inflater.avail_out;
      if (code == Z_MEM_ERROR) throw std::bad_alloc();
      if (code == Z_STREAM_END) {
        kind = Kind::kBetweenMembers;
      } else if (code != Z_OK && code != Z_BUF_ERROR) {
        fail_with(ErrorCode::kSyntax, fmt::format("expected gzip data, found damage ({})",
                                                  inflater.msg ? inflater.msg : "a dictionary"));
      }
      judge_inflation(bytes + done);
    }
    return done;
  }

  void judge_inflation(std::uint64_t inflated) {
    if (failure || inflated < kInflationFloor) return;
    const std::uint64_t used = raw_bytes - (end - begin);
    if (inflated / most_inflation <= used) return;
    fail_with(ErrorCode::kSyntax,
              fmt::format("expected gzip data that inflates to at most {} times its size, found "
                          "{} bytes from {} (limit inflation; --limit inflation=N raises it)",
                          most_inflation, inflated, used));
  }

  std::size_t read(char* to, std::size_t room) {
    if (file < 0) {
      const std::size_t count = std::min(room, text.size());
      std::memcpy(to, text.data(), count);
      text.remove_prefix(count);
      return count;
    }
    if (kind == Kind::kUnknown) find_kind();
    return kind == Kind::kPlain ? read_plain(to, room) : read_gzip(to, room);
  }
};

ByteSource::ByteSource(std::unique_ptr<State> state) : state_(std::move(state)) {}
ByteSource::ByteSource(ByteSource&&) noexcept = default;
ByteSource& ByteSource::operator=(ByteSource&&) noexcept = default;
ByteSource::~ByteSource() = default;

Result<ByteSource> ByteSource::open(const std::filesystem::path& file, const ReadOptions& options) {
  const auto io_error = [&](std::string message) {
    return fail(ErrorCode::kIo, std::move(message), file);
  };
  auto state = std::make_unique<State>();
  if (options.dash_is_stdin && file == "-") {
    state->file = STDIN_FILENO;
  } else {
    std::error_code ignored;
    const auto status = std::filesystem::status(file, ignored);
    if (!std::filesystem::exists(status)) return io_error("expected a readable file, found none");
    if (std::filesystem::is_directory(status)) {
      return io_error("expected a file, found a directory");
    }
    state->file = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    state->owns_file = true;
    if (state->file < 0) return io_error("expected a readable file, found one that is not");
  }
  struct stat status = {};
  if (::fstat(state->file, &status) == 0 && S_ISREG(status.st_mode)) {
    state->raw_size = static_cast<std::uint64_t>(status.st_size);
  }
  state->progress = options.progress;
  state->most_inflation = std::max<std::uint64_t>(options.limits.inflation, 1);
  return ByteSource(std::move(state));
}

ByteSource ByteSource::over(std::string_view text) {
  auto state = std::make_unique<State>();
  state->text = text;
  return ByteSource(std::move(state));
}

Result<std::size_t> ByteSource::read(char* to, std::size_t room) {
  if (!state_->failure) {
    if (const std::size_t count = state_->read(to, room); count > 0) {
      state_->bytes += count;
      return count;
    }
  }
  if (state_->failure) return Unexpected{*state_->failure};
  return std::size_t{0};
}

std::uint64_t ByteSource::bytes_read() const { return state_->bytes; }

double ByteSource::share_read() const {
  if (state_->raw_size == 0) return 0;
  const double raw = static_cast<double>(state_->raw_bytes);
  return std::min(1.0, raw / static_cast<double>(state_->raw_size));
}

}  // namespace perfmodel
