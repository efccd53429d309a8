#include "gzip_member.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace perfmodel::sweep {
namespace {

constexpr int kGzipWindow = 15 + 16;

}  // namespace

std::optional<std::string> gzip_member(std::string_view text) {
  z_stream stream = {};
  if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return std::nullopt;
  }
  gz_header header = {};
  header.os = 255;  // unknown
  deflateSetHeader(&stream, &header);
  std::string made(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(made.data());
  stream.avail_out = static_cast<uInt>(made.size());
  const int ended = deflate(&stream, Z_FINISH);
  made.resize(stream.total_out);
  deflateEnd(&stream);
  return ended == Z_STREAM_END ? std::optional(std::move(made)) : std::nullopt;
}

struct MemberReader::State {
  std::filesystem::path file;
  std::ifstream in;
  std::array<char, 65536> buffer;
  z_stream stream = {};
  std::uint64_t size = 0, begin = 0, end = 0;
  std::uint64_t read = 0;  // bytes of the file up to the end of the buffer
  std::string text;

  ~State() { inflateEnd(&stream); }

  std::uint64_t position() const { return read - stream.avail_in; }

  Error problem(const std::string& message) const {
    return {.code = ErrorCode::kIo, .message = message, .file = file};
  }

  // False at the end of the file.
  Result<bool> fill() {
    if (stream.avail_in > 0) return true;
    in.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    if (in.bad()) return Unexpected{problem("the file cannot be read")};
    stream.next_in = reinterpret_cast<Bytef*>(buffer.data());
    stream.avail_in = static_cast<uInt>(in.gcount());
    read += static_cast<std::uint64_t>(in.gcount());
    return stream.avail_in > 0;
  }
};

MemberReader::MemberReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
MemberReader::MemberReader(MemberReader&&) noexcept = default;
MemberReader& MemberReader::operator=(MemberReader&&) noexcept = default;
MemberReader::~MemberReader() = default;

Result<MemberReader> MemberReader::open(const std::filesystem::path& file) {
  auto state = std::make_unique<State>();
  state->file = file;
  errno = 0;
  state->in.open(file, std::ios::binary);
  std::error_code failure;
  if (state->in) state->size = std::filesystem::file_size(file, failure);
  if (!state->in || failure) {
    return Unexpected{state->problem(fmt::format("cannot open: {}", std::strerror(errno)))};
  }
  if (inflateInit2(&state->stream, kGzipWindow) != Z_OK) {
    return fail(ErrorCode::kOutOfMemory, "out of memory");
  }
  return MemberReader(std::move(state));
}

Result<std::optional<std::string_view>> MemberReader::next() {
  State& s = *state_;
  z_stream& stream = s.stream;
  inflateReset(&stream);
  s.text.clear();
  s.begin = s.position();
  std::array<char, 65536> piece;
  for (;;) {
    PERFMODEL_TRY(more, s.fill());
    if (!*more) return std::nullopt;
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    const int state = inflate(&stream, Z_NO_FLUSH);
    s.text.append(piece.data(), piece.size() - stream.avail_out);
    if (state == Z_STREAM_END) break;
    if (state != Z_OK && state != Z_BUF_ERROR) return std::nullopt;
    if (s.text.size() > kLargest) {
      return Unexpected{s.problem(fmt::format(
          "expected members of at most {} bytes, found more at byte {}", kLargest, s.begin))};
    }
  }
  s.end = s.position();
  return std::string_view(s.text);
}

std::uint64_t MemberReader::begin() const { return state_->begin; }
std::uint64_t MemberReader::end() const { return state_->end; }
std::uint64_t MemberReader::size() const { return state_->size; }

void MemberReader::seek(std::uint64_t offset) {
  state_->in.clear();
  state_->in.seekg(static_cast<std::streamoff>(offset));
  state_->stream.avail_in = 0;
  state_->read = state_->end = offset;
}

}  // namespace perfmodel::sweep
