#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "perfmodel/result.hpp"

namespace perfmodel::cli {

/// Text that may not be shown yet: pieces that a reader has got could not be taken back if a later
/// row is wrong. In memory up to 16 MiB, the rest in a file without a name in the folder for
/// temporary files (TMPDIR), which goes with the process.
class TextAside {
 public:
  TextAside() = default;
  TextAside(TextAside&& other) noexcept;
  TextAside& operator=(TextAside&& other) noexcept;
  ~TextAside();

  /// Error: the file cannot be made or written (a full disk).
  Result<void> write(std::string_view text);

  /// The text from its begin. Errors: a file that cannot be read; as `take`.
  Result<void> each_piece(const std::function<Result<void>(std::string_view)>& take) const;

 private:
  std::string text_;     // in front of the file's
  int descriptor_ = -1;  // none
};

}  // namespace perfmodel::cli
