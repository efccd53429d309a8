#pragma once

#include <filesystem>

#include "perfmodel/result.hpp"

namespace perfmodel::sweep {

/// The folder of a sweep's parts while somebody works in it. Every process at work shares it; who
/// merges and removes the parts needs it alone. (Where the file system knows no locks, nothing is
/// locked: merging is then left to whoever is sure that no process works.)
class FolderLock {
 public:
  /// Makes the folder, with a file `lock` in it, and shares it. Waits while somebody merges.
  static Result<FolderLock> share(const std::filesystem::path& folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) noexcept;
  ~FolderLock();

  enum class Alone {
    kYes,
    kOthersAtWork,  ///< the last of them gets it
    kGone,          ///< somebody else merged and removed the folder
  };
  /// From shared to alone, without waiting. Of several that ask at once, one gets it. Who does not
  /// has lost its share too.
  Alone take_alone();

  /// The folder with the lock, if nothing else is left in it.
  void remove_folder();

 private:
  FolderLock(std::filesystem::path folder, int descriptor);
  bool still_there() const;

  std::filesystem::path folder_;
  int descriptor_ = -1;
};

}  // namespace perfmodel::sweep
