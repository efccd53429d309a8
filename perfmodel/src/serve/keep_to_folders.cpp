#include "keep_to_folders.hpp"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "descriptor.hpp"

namespace perfmodel::serve {
namespace {

// Rights of the first version; later ones add two that this program would not use.
constexpr std::uint64_t kRead = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;
constexpr std::uint64_t kWrite = LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |
                                 LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_DIR |
                                 LANDLOCK_ACCESS_FS_MAKE_REG;
constexpr std::uint64_t kOthers = LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_MAKE_CHAR |
                                  LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |
                                  LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM;
#ifdef LANDLOCK_ACCESS_FS_TRUNCATE
constexpr std::uint64_t kTruncate = LANDLOCK_ACCESS_FS_TRUNCATE;
#else
constexpr std::uint64_t kTruncate = std::uint64_t{1} << 14;
#endif
constexpr long kVersionWithTruncate = 3;

bool allow(int rules, const std::filesystem::path& folder, std::uint64_t rights) {
  const Descriptor opened{open(folder.c_str(), O_PATH | O_CLOEXEC)};
  if (opened.number() < 0) return true;
  landlock_path_beneath_attr rule{};
  rule.allowed_access = rights;
  rule.parent_fd = opened.number();
  return syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0;
}

Unexpected no_landlock() {
  return decline(
      "expected a system with Landlock, which keeps the commands of clients from its files, found "
      "none");
}

}  // namespace

Result<void> keep_to_folders(const std::vector<std::filesystem::path>& read,
                             const std::vector<std::filesystem::path>& write) {
  const long version =
      syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (version < 1) return no_landlock();
  const std::uint64_t truncate = version >= kVersionWithTruncate ? kTruncate : 0;
  landlock_ruleset_attr all{};
  all.handled_access_fs = kRead | kWrite | kOthers | truncate;
  const Descriptor rules{
      static_cast<int>(syscall(SYS_landlock_create_ruleset, &all, sizeof all, 0))};
  if (rules.number() < 0) return no_landlock();
  bool good = true;
  for (const auto& folder : read) good &= allow(rules.number(), folder, kRead);
  for (const auto& folder : write) good &= allow(rules.number(), folder, kRead | kWrite | truncate);
  if (!good || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      syscall(SYS_landlock_restrict_self, rules.number(), 0) != 0) {
    return no_landlock();
  }
  return {};
}

}  // namespace perfmodel::serve
