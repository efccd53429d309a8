#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "perfmodel/result.hpp"

namespace perfmodel::sweep {

/// One gzip member without time and name: equal texts give equal bytes. Nothing without memory.
std::optional<std::string> gzip_member(std::string_view text);

/// Reads a file of gzip members one by one. A file without a complete member at its end is torn, be
/// it cut off or overwritten: the members before it count.
class MemberReader {
 public:
  static Result<MemberReader> open(const std::filesystem::path& file);
  MemberReader(MemberReader&&) noexcept;
  MemberReader& operator=(MemberReader&&) noexcept;
  ~MemberReader();

  /// The next member's text; none at the end and if the rest is torn. It lives until the next call.
  /// Errors: reading fails; a member of more than `kLargest` bytes.
  Result<std::optional<std::string_view>> next();

  std::uint64_t begin() const;  ///< offset of the member that `next` gave
  std::uint64_t end() const;    ///< end of the last complete member
  std::uint64_t size() const;   ///< size of the file when it was opened

  /// Goes on at the beginning of a member.
  void seek(std::uint64_t offset);

  static constexpr std::size_t kLargest = std::size_t{1} << 30;

 private:
  struct State;
  explicit MemberReader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace perfmodel::sweep
