#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string_view>
#include <utility>

#include "file_descriptor.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::sweep {

/// The rows that one process has finished: a CSV of gzip members, so that `zcat` shows it. The
/// first member is the head, a comment with the sweep's fingerprint; every other holds rows, one
/// per line, the row's key in front. Each member is complete on the disk before the next is begun:
/// a process that is killed leaves at most one torn member, its last.
class PartWriter {
 public:
  /// Opens for appending: takes the file for itself, cuts a torn tail off, writes the head of a new
  /// file. Errors: another process writes the file; it is no part, or one of another fingerprint;
  /// reading or writing fails.
  static Result<PartWriter> open(const std::filesystem::path& file, std::string_view fingerprint);

  /// Appends rows, each with its line end, and waits until they are on the disk. After an error the
  /// content of the file is unchanged.
  Result<void> append(std::string_view rows);

 private:
  PartWriter(std::filesystem::path file, FileDescriptor opened)
      : file_(std::move(file)), descriptor_(std::move(opened)) {}
  Result<void> write_member(std::string_view text);

  std::filesystem::path file_;
  FileDescriptor descriptor_;
  std::uint64_t end_ = 0;
};

struct PartSize {
  std::uint64_t complete = 0;  ///< bytes of complete members
  std::uint64_t torn = 0;      ///< bytes after them
};

/// Calls `visit` with the rows of every complete member and the offset of the member. A part whose
/// head is torn has no rows. Errors of `visit`; no part, or one of another fingerprint.
Result<PartSize> read_part(
    const std::filesystem::path& file, std::string_view fingerprint,
    const std::function<Result<void>(std::string_view rows, std::uint64_t offset)>& visit);

}  // namespace perfmodel::sweep
