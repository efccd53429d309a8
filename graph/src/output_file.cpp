#include "perfmodel/output_file.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

namespace perfmodel {
namespace {

Unexpected write_error(const std::filesystem::path& file, std::string_view what) {
  return Unexpected{Error{
      .code = ErrorCode::kIo, .message = fmt::format("cannot write: {}", what), .file = file}};
}

// Unique among the processes and threads that may write the same file.
std::filesystem::path temporary_name(const std::filesystem::path& file) {
  static std::atomic<unsigned> count{0};
  std::filesystem::path name = file;
  name += fmt::format(".{}.{}.tmp", ::getpid(), count.fetch_add(1));
  return name;
}

}  // namespace

struct OutputFile::State {
  std::filesystem::path file, temporary;  // the latter is empty for what is written directly
  std::ofstream out;
  bool gzip = false, finished = false;
  int problem = 0;  // errno of the first one
  z_stream stream = {};
  gz_header header = {};

  ~State() {
    if (gzip) deflateEnd(&stream);
    if (temporary.empty()) return;
    out.close();
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
  }

  void put(const char* bytes, std::size_t size) {
    if (problem != 0) return;
    errno = 0;
    if (!out.write(bytes, static_cast<std::streamsize>(size))) problem = errno ? errno : EIO;
  }

  // Not more than zlib can count.
  void compress(std::string_view bytes, int flush) {
    std::array<char, 65536> buffer;
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(bytes.size());
    do {
      stream.next_out = reinterpret_cast<Bytef*>(buffer.data());
      stream.avail_out = static_cast<uInt>(buffer.size());
      if (deflate(&stream, flush) == Z_STREAM_ERROR) {
        problem = problem != 0 ? problem : EIO;
        return;
      }
      put(buffer.data(), buffer.size() - stream.avail_out);
    } while (stream.avail_out == 0);
  }
};

OutputFile::OutputFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
OutputFile::OutputFile(OutputFile&&) noexcept = default;
OutputFile& OutputFile::operator=(OutputFile&&) noexcept = default;
OutputFile::~OutputFile() = default;

Result<OutputFile> OutputFile::create(const std::filesystem::path& file) {
  auto state = std::make_unique<State>();
  state->file = file;
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
  const std::filesystem::path name = special ? file : temporary_name(file);
  errno = 0;
  state->out.open(name, std::ios::binary | std::ios::trunc);
  if (!state->out) return write_error(file, std::strerror(errno));
  if (!special) state->temporary = name;
  return OutputFile(std::move(state));
}

void OutputFile::write(std::string_view bytes) {
  PERFMODEL_CHECK(state_ && !state_->finished);
  if (!state_->gzip) return state_->put(bytes.data(), bytes.size());
  constexpr std::size_t kPiece = std::size_t{1} << 30;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(kPiece, bytes.size()))) {
    state_->compress(bytes.substr(0, kPiece), Z_NO_FLUSH);
  }
}

Result<void> OutputFile::finish() {
  PERFMODEL_CHECK(state_ && !state_->finished);
  if (state_->gzip) state_->compress({}, Z_FINISH);
  state_->finished = true;
  errno = 0;
  state_->out.close();
  if (!state_->out && state_->problem == 0) state_->problem = errno ? errno : EIO;
  if (state_->problem != 0) return write_error(state_->file, std::strerror(state_->problem));
  return {};
}

Result<void> OutputFile::commit() {
  PERFMODEL_CHECK(state_ != nullptr);
  if (!state_->finished) {
    if (auto finished = finish(); !finished) return finished;
  }
  if (state_->problem != 0) return write_error(state_->file, std::strerror(state_->problem));
  if (state_->temporary.empty()) return {};
  std::error_code problem;
  std::filesystem::rename(state_->temporary, state_->file, problem);
  if (problem) return write_error(state_->file, problem.message());
  state_->temporary.clear();
  return {};
}

}  // namespace perfmodel
