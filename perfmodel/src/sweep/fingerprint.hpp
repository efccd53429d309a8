#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "perfmodel/result.hpp"

namespace perfmodel::sweep {

/// Tells settings and files apart (FNV-1a, 64 bits); no protection against deliberate collisions.
class Fingerprint {
 public:
  /// Texts count one by one: "a", "b" is not "ab".
  void add(std::string_view text);
  /// Adds the content of a file, not its name.
  Result<void> add_file(const std::filesystem::path& file);
  /// Names and contents of all files below a folder; a folder that is not there holds none.
  Result<void> add_folder(const std::filesystem::path& folder);

  std::uint64_t value() const { return value_; }
  std::string text() const;        ///< 16 hex digits
  std::string short_text() const;  ///< 8 hex digits

 private:
  void mix(std::string_view bytes);

  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace perfmodel::sweep
