#pragma once

#include <filesystem>
#include <memory>

namespace perfmodel {

/// The name of a file that is to be removed if a signal ends the process (`remove_temporary_files`
/// in output_file.hpp), from construction to destruction.
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

}  // namespace perfmodel
