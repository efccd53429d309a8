#include "perfmodel/version.hpp"

#include <fmt/format.h>

namespace perfmodel {

std::string_view program_version() { return PERFMODEL_VERSION; }

std::string version_text() { return fmt::format("{} (git {})", program_version(), git_revision()); }

std::string build_text() {
  constexpr std::string_view kBuildType = PERFMODEL_BUILD_TYPE;
  return fmt::format("{} (git {}, {}{}{})", program_version(), git_revision(), PERFMODEL_COMPILER,
                     kBuildType.empty() ? "" : ", ", kBuildType);
}

}  // namespace perfmodel
