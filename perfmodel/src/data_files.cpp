#include "perfmodel/data_files.hpp"

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

}  // namespace

Result<fs::path> find_data_folder() {
  if (const char* given = std::getenv("PERFMODEL_DATA"); given && *given) {
    if (holds_data(given)) return fs::path(given);
    return Unexpected{Error{.code = ErrorCode::kIo,
                            .message = "expected a data folder with gpus/ in it (PERFMODEL_DATA), "
                                       "found none",
                            .file = given}};
  }
  std::vector<fs::path> candidates;
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
