#include "folder_lock.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace perfmodel::sweep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kLockFile = "lock";

}  // namespace

Result<FolderLock> FolderLock::share(const fs::path& folder) {
  for (;;) {
    std::error_code failure;
    fs::create_directories(folder, failure);
    const fs::path file = folder / kLockFile;
    FileDescriptor opened(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (opened < 0) {
      const int reason = errno;
      if (reason == ENOENT && !failure) continue;  // removed since
      return fail(ErrorCode::kIo,
                  fmt::format("cannot write to this folder: {}",
                              failure ? failure.message() : std::strerror(reason)),
                  folder);
    }
    FolderLock lock(folder, std::move(opened));
    while (::flock(lock.file_, LOCK_SH) != 0 && errno == EINTR) {
    }
    if (lock.still_there()) return lock;
  }
}

bool FolderLock::still_there() const {
  struct stat mine = {}, named = {};
  return ::fstat(file_, &mine) == 0 && ::stat((folder_ / kLockFile).c_str(), &named) == 0 &&
         mine.st_ino == named.st_ino && mine.st_dev == named.st_dev;
}

FolderLock::Alone FolderLock::take_alone() {
  if (::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return Alone::kOthersAtWork;
  }
  return still_there() ? Alone::kYes : Alone::kGone;
}

void FolderLock::remove_folder() {
  std::error_code ignored;
  fs::remove(folder_ / kLockFile, ignored);
  fs::remove(folder_, ignored);
}

}  // namespace perfmodel::sweep
