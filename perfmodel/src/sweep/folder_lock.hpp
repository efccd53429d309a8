#pragma once

#include <filesystem>
#include <utility>

#include "file_descriptor.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::sweep {

/// A lock on the folder of a sweep's parts. Every working process shares it; the process that
/// merges and removes the parts needs it alone. (On a file system without locks, nothing is locked:
/// merge only when no process works.)
class FolderLock {
 public:
  /// Makes the folder, with a file `lock` in it, and shares it. Waits during a merge.
  static Result<FolderLock> share(const std::filesystem::path& folder);

  enum class Alone {
    kYes,
    kOthersAtWork,  ///< the last of them gets it
    kGone,          ///< another process merged and removed the folder
  };
  /// From shared to exclusive, without waiting. If several ask at once, one gets it. The others
  /// have lost their share too.
  Alone take_alone();

  /// The folder with the lock, if nothing else is left in it.
  void remove_folder();

 private:
  FolderLock(std::filesystem::path folder, FileDescriptor file)
      : folder_(std::move(folder)), file_(std::move(file)) {}
  bool still_there() const;

  std::filesystem::path folder_;
  FileDescriptor file_;
};

}  // namespace perfmodel::sweep
