#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "perfmodel/result.hpp"

namespace perfmodel {

/// A file that appears whole or not at all: it is written under another name in the same folder and
/// renamed by `commit`; without that, nothing is left. A killed process leaves `file.PID.N.tmp`,
/// which is never read. A read-only file is not replaced. A name that ends in `.gz` is compressed,
/// as one member with an empty header, so that equal bytes give equal files. A replaced file keeps
/// its permissions, and a link stays a link. Pipes and devices (/dev/stdout) are written directly.
class OutputFile {
 public:
  static Result<OutputFile> create(const std::filesystem::path& file);

  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) noexcept;
  ~OutputFile();

  /// Problems are kept for `finish`, so that a writer need not ask after each piece.
  void write(std::string_view bytes);

  /// Ends the text: after success only the rename is left. For several files that belong together.
  Result<void> finish();

  /// Ends the text unless that is done, and gives the file its name.
  Result<void> commit();

 private:
  struct State;
  explicit OutputFile(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

/// Writes a file whole or not at all.
Result<void> write_file(const std::filesystem::path& file, std::string_view text);

/// Makes a folder with those above it, if need be. Error: `expected` and the system's reason.
Result<void> make_folder(const std::filesystem::path& folder,
                         std::string_view expected = "expected a folder that can be made, found: ");

}  // namespace perfmodel
