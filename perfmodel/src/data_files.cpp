#include "perfmodel/data_files.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

namespace perfmodel {
namespace fs = std::filesystem;
namespace {

// What makes a folder the data folder; `data/` alone is a common name.
bool holds_data(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_directory(folder / "gpus", ignored);
}

// Seen from a shared library that this is part of: PREFIX/lib or PREFIX/lib/ARCHITECTURE, or its
// folder in a build tree inside the sources. Nothing where this is part of the program.
std::vector<fs::path> beside_library() {
  Dl_info found;
  std::error_code ignored;
  if (dladdr(reinterpret_cast<const void*>(&find_data_folder), &found) == 0 ||
      fs::equivalent(found.dli_fname, "/proc/self/exe", ignored) ||
      !fs::path(found.dli_fname).has_parent_path()) {
    return {};
  }
  const fs::path folder = fs::path(found.dli_fname).parent_path();
  return {folder / "../share/perfmodel/data", folder / "../../share/perfmodel/data",
          folder / "../../../data"};
}

}  // namespace

Result<fs::path> find_data_folder() {
  if (const char* given = std::getenv("PERFMODEL_DATA"); given && *given) {
    if (holds_data(given)) return fs::path(given);
    return Unexpected{Error{.code = ErrorCode::kIo,
                            .message = "expected a data folder with gpus/ in it (PERFMODEL_DATA), "
                                       "found none",
                            .file = given}};
  }
  std::vector<fs::path> candidates = beside_library();
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) {
    // The installed one first: seen from /usr/bin, the other is /data, anybody's folder.
    candidates.push_back(program.parent_path() / "../share/perfmodel/data");
    candidates.push_back(program.parent_path() / "../../../data");
  }
#ifdef PERFMODEL_SOURCE_DATA
  candidates.push_back(PERFMODEL_SOURCE_DATA);
#endif
  for (const fs::path& folder : candidates) {
    if (holds_data(folder)) return folder.lexically_normal();
  }
  return fail(ErrorCode::kIo,
              "expected the data folder beside the program or in the sources, found none: set "
              "PERFMODEL_DATA");
}

}  // namespace perfmodel
