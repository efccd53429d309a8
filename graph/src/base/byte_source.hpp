#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "perfmodel/graph/detail/read_options.hpp"

namespace perfmodel {

/// The text of a file, pipe or buffer, inflated where it is gzip (any number of members).
///
/// zlib's own gzread is not used: it passes over garbage after a member, and if compressed data is
/// damaged it withholds the text that it had inflated before.
class ByteSource {
 public:
  /// Errors have the file. Directories and missing files are told apart.
  static Result<ByteSource> open(const std::filesystem::path& file, const ReadOptions& options);

  /// `text` must outlive the source.
  static ByteSource over(std::string_view text);

  ByteSource(ByteSource&&) noexcept;
  ByteSource& operator=(ByteSource&&) noexcept;
  ~ByteSource();

  /// Fills `room` bytes, fewer only at the end and before damage; 0 at the end. Damage, and data
  /// that inflates beyond the limit, is an error of the call after the last good bytes, and of
  /// every later one. Errors have no place: the caller knows line and column.
  Result<std::size_t> read(char* to, std::size_t room);

  std::uint64_t bytes_read() const;  ///< inflated bytes so far
  /// Of the file, as far as it was read; 0: its size is not known.
  double share_read() const;

 private:
  struct State;
  explicit ByteSource(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace perfmodel
