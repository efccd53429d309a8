#pragma once

#include <filesystem>
#include <memory>

namespace perfmodel {

/// The name of a file that is to be removed if a signal ends the process, from construction to
/// destruction. At most 1024 at once are looked after.
class TemporaryName {
 public:
  explicit TemporaryName(const std::filesystem::path& name);
  ~TemporaryName();
  TemporaryName(TemporaryName&&) = delete;

  const char* c_str() const { return name_.get(); }

 private:
  std::unique_ptr<char[]> name_;
  int slot_ = -1;  // none: so many files at once are not looked after
};

/// Removes the files of all names: what `OutputFile`s have written and not yet renamed. For signal
/// handlers that end the process: safe there, on any thread.
void remove_temporary_files() noexcept;

}  // namespace perfmodel
