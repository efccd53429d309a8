#include "part_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "gzip_member.hpp"

namespace perfmodel::sweep {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kHead = "# rows of a perfpredict sweep, version 1, fingerprint ";

std::string head(std::string_view fingerprint) { return fmt::format("{}{}\n", kHead, fingerprint); }

Unexpected problem(const fs::path& file, std::string message) {
  return fail(ErrorCode::kIo, std::move(message), file);
}

Result<void> check_head(std::string_view text, const fs::path& file, std::string_view fingerprint) {
  if (text == head(fingerprint)) return {};
  if (!text.starts_with(kHead)) return problem(file, "expected rows of a sweep, found others");
  text.remove_prefix(kHead.size());
  return problem(file,
                 fmt::format("expected rows made with these settings and data (fingerprint {}), "
                             "found rows of others ({}): remove them or write to another file",
                             fingerprint, text.substr(0, text.find('\n'))));
}

// A head that is torn begins as gzip does, as far as it goes.
Result<void> check_torn_head(const fs::path& file, std::string_view fingerprint) {
  const auto whole = gzip_member(head(fingerprint));
  if (!whole) return fail(ErrorCode::kOutOfMemory, "out of memory");
  const FileDescriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  char begin[4] = {};
  const ssize_t size = opened < 0 ? -1 : ::read(opened, begin, sizeof begin);
  if (size < 0) return problem(file, fmt::format("cannot read: {}", std::strerror(errno)));
  if (!whole->starts_with(std::string_view(begin, static_cast<std::size_t>(size)))) {
    return problem(file, "expected rows of a sweep, found something else");
  }
  return {};
}

}  // namespace

Result<PartSize> read_part(
    const fs::path& file, std::string_view fingerprint,
    const std::function<Result<void>(std::string_view rows, std::uint64_t offset)>& visit) {
  PERFMODEL_TRY(reader, MemberReader::open(file));
  for (bool first = true;; first = false) {
    PERFMODEL_TRY(member, reader->next());
    if (!*member) break;
    PERFMODEL_TRY(
        seen, first ? check_head(**member, file, fingerprint) : visit(**member, reader->begin()));
  }
  if (reader->end() == 0) PERFMODEL_TRY_TO(check_torn_head(file, fingerprint));
  // A process at work may have written on since the file was opened.
  const std::uint64_t size = std::max(reader->size(), reader->end());
  return PartSize{.complete = reader->end(), .torn = size - reader->end()};
}

Result<PartWriter> PartWriter::open(const fs::path& file, std::string_view fingerprint) {
  constexpr mode_t kMode = 0666;  // less the user's mask
  FileDescriptor opened(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kMode));
  if (opened < 0) return problem(file, fmt::format("cannot open: {}", std::strerror(errno)));
  PartWriter writer(file, std::move(opened));
  if (::flock(writer.descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return problem(file, "expected no other process at work here, found one that writes this file");
  }
  const auto nothing = [](std::string_view, std::uint64_t) { return Result<void>(); };
  PERFMODEL_TRY(size, read_part(file, fingerprint, nothing));
  writer.end_ = size->complete;
  if (::ftruncate(writer.descriptor_, static_cast<off_t>(writer.end_)) != 0) {
    return problem(file, fmt::format("cannot cut off a torn end: {}", std::strerror(errno)));
  }
  if (writer.end_ == 0) PERFMODEL_TRY_TO(writer.write_member(head(fingerprint)));
  return writer;
}

Result<void> PartWriter::append(std::string_view rows) { return write_member(rows); }

Result<void> PartWriter::write_member(std::string_view text) {
  const auto member = gzip_member(text);
  if (!member) return fail(ErrorCode::kOutOfMemory, "out of memory");
  std::size_t done = 0;
  while (done < member->size()) {
    const ssize_t wrote = ::pwrite(descriptor_, member->data() + done, member->size() - done,
                                   static_cast<off_t>(end_ + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) break;
    done += static_cast<std::size_t>(wrote);
  }
  if (done < member->size() || ::fsync(descriptor_) != 0) {
    const int reason = errno;
    // If the end cannot be cut off now, readers of the file see a torn end.
    [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, static_cast<off_t>(end_));
    return problem(file_, fmt::format("cannot write: {}", std::strerror(reason)));
  }
  end_ += member->size();
  return {};
}

}  // namespace perfmodel::sweep
