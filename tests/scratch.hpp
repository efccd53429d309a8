#pragma once

#include <stdlib.h>
#include <filesystem>
#include <string>

namespace perfmodel::test_support {

/// A folder of its own for every test process, so that tests may run side by side under any names
/// of files; gone with the process.
inline const std::filesystem::path& scratch() {
  static const struct Folder {
    Folder() {
      std::string name =
          (std::filesystem::temp_directory_path() / "perfmodel_test_XXXXXX").string();
      path = mkdtemp(name.data());
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
    std::filesystem::path path;
  } folder;
  return folder.path;
}

inline std::string scratch_file(const std::string& name) { return (scratch() / name).string(); }

}  // namespace perfmodel::test_support
