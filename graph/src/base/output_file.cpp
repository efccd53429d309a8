#include "perfmodel/detail/output_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "temporary_files.hpp"

namespace perfmodel {
namespace {

Unexpected write_error(const std::filesystem::path& file, std::string_view what) {
  return fail(ErrorCode::kIo, fmt::format("cannot write: {}", what), file);
}

// Unique among the processes and threads that may write the same file; the end of a long name is
// left out, as a name may have 255 bytes.
std::filesystem::path temporary_name(const std::filesystem::path& file) {
  static std::atomic<unsigned> count{0};
  constexpr std::size_t kMostBytes = 200;
  const std::string name = file.filename().string().substr(0, kMostBytes);
  return file.parent_path() / fmt::format("{}.{}.{}.tmp", name, ::getpid(), count.fetch_add(1));
}

// Not every file system can be asked.
bool is_lost(int reason) { return reason != EINVAL && reason != ENOSYS && reason != ENOTSUP; }

constexpr mode_t kMode = 0666;  // less what the user's mask takes

}  // namespace

struct OutputFile::State {
  std::filesystem::path name, file;        // the name as given; the file that its links lead to
  std::optional<TemporaryName> temporary;  // none: written directly
  int descriptor = -1;
  std::string waiting;  // will be written with the next text
  bool gzip = false, finished = false;
  int problem = 0;  // errno of the first one
  z_stream stream = {};
  gz_header header = {};

  ~State() {
    if (gzip) deflateEnd(&stream);
    if (descriptor >= 0) ::close(descriptor);
    if (temporary) ::unlink(temporary->c_str());
  }

  void note_problem(int reason) {
    if (problem == 0) problem = reason;
  }

  // A file that is replaced keeps its permissions.
  void open_temporary() {
    struct stat old;
    const bool replaces = ::stat(file.c_str(), &old) == 0;
    do {  // a killed process of the same number may have left one
      temporary.emplace(temporary_name(file));
      descriptor = ::open(temporary->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC,
                          replaces ? kMode & old.st_mode : kMode);
    } while (descriptor < 0 && errno == EEXIST);
    if (descriptor < 0) {
      note_problem(errno);
      temporary.reset();
    } else if (replaces) {  // not all file systems can; then fewer people may read it, never more
      [[maybe_unused]] const int ignored = ::fchmod(descriptor, old.st_mode & 07777);
    }
  }

  void open_directly() {
    descriptor = ::open(file.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
    if (descriptor < 0) note_problem(errno);
  }

  void put_out(std::string_view bytes) {
    while (!bytes.empty() && problem == 0) {
      const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
      if (written >= 0) {
        bytes.remove_prefix(static_cast<std::size_t>(written));
      } else if (errno != EINTR) {
        note_problem(errno);
      }
    }
  }

  void put(std::string_view bytes) {
    constexpr std::size_t kPiece = std::size_t{1} << 16;
    if (waiting.size() + bytes.size() < kPiece) {
      waiting += bytes;
      return;
    }
    put_out(waiting);
    waiting.clear();
    put_out(bytes);
  }

  // Not more than zlib can count.
  void compress(std::string_view bytes, int flush) {
    std::array<char, 65536> buffer;
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
      stream.avail_out = static_cast<uInt>(buffer.size());
      if (deflate(&stream, flush) == Z_STREAM_ERROR) return note_problem(EIO);
      put({buffer.data(), buffer.size() - stream.avail_out});
    } while (stream.avail_out == 0);
  }

  // Data that the disk has not taken yet may still fail. So it is synced before the rename, and the
  // name never means less than the whole file, even if the machine loses power.
  void close() {
    put_out(waiting);
    waiting.clear();
    if (temporary && problem == 0 && ::fsync(descriptor) != 0 && is_lost(errno)) {
      note_problem(errno);
    }
    if (::close(std::exchange(descriptor, -1)) != 0) note_problem(errno);
  }
};

OutputFile::OutputFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile& OutputFile::operator=(OutputFile&&) noexcept = default;
OutputFile::~OutputFile() = default;

Result<OutputFile> OutputFile::create(const std::filesystem::path& file) {
  auto state = std::make_unique<State>();
  state->name = state->file = file;
  std::error_code ignored;
  const auto status = std::filesystem::status(file, ignored);
  if (std::filesystem::is_directory(status)) return write_error(file, "it is a folder");
  const bool special = std::filesystem::exists(status) && !std::filesystem::is_regular_file(status);
  if (file.extension() == ".gz") {
    constexpr int kGzipWindow = 15 + 16;
    if (deflateInit2(&state->stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK) {
      return write_error(file, "no memory to compress");
    }
    state->gzip = true;
    state->header.os = 255;  // unknown
    deflateSetHeader(&state->stream, &state->header);
  }
  if (std::filesystem::is_regular_file(status)) {
    const auto target = std::filesystem::canonical(file, ignored);  // a link stays one
    if (!ignored) state->file = target;
  }
  if (special) {
    state->open_directly();
  } else if (std::filesystem::exists(status) && ::access(file.c_str(), W_OK) != 0) {
    state->problem = errno;  // a rename would ask for rights in the folder alone
  } else {
    state->open_temporary();
  }
  if (state->problem != 0) return write_error(file, std::strerror(state->problem));
  return OutputFile(std::move(state));
}

void OutputFile::write(std::string_view bytes) {
  PERFMODEL_CHECK(state_ && !state_->finished);
  if (!state_->gzip) return state_->put(bytes);
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(kPiece, bytes.size()))) {
    state_->compress(bytes.substr(0, kPiece), Z_NO_FLUSH);
  }
}

Result<void> OutputFile::finish() {
  PERFMODEL_CHECK(state_ && !state_->finished);
  if (state_->gzip) state_->compress({}, Z_FINISH);
  state_->finished = true;
  state_->close();
  if (state_->problem != 0) return write_error(state_->name, std::strerror(state_->problem));
  return {};
}

Result<void> OutputFile::commit() {
  PERFMODEL_CHECK(state_ != nullptr);
  if (!state_->finished) {
    if (auto finished = finish(); !finished) return finished;
  }
  if (state_->problem != 0) return write_error(state_->name, std::strerror(state_->problem));
  if (!state_->temporary) return {};
  if (::rename(state_->temporary->c_str(), state_->file.c_str()) != 0) {
    return write_error(state_->name, std::strerror(errno));
  }
  state_->temporary.reset();
  return {};
}

Result<void> write_file(const std::filesystem::path& file, std::string_view text) {
  PERFMODEL_TRY(out, OutputFile::create(file));
  out->write(text);
  return out->commit();
}

Result<void> make_folder(const std::filesystem::path& folder, std::string_view expected) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (!failure) return {};
  return fail(ErrorCode::kIo, fmt::format("{}{}", expected, failure.message()), folder);
}

}  // namespace perfmodel
