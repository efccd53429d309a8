#include "perfmodel/data_files.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <optional>
#include <vector>

namespace perfmodel {
namespace fs = std::filesystem;
namespace {

// Tells the data folder by its contents; `data/` alone is a common name.
bool holds_data(const fs::path& folder) {
  std::error_code ignored;
  return fs::is_directory(folder / "gpus", ignored);
}

// The folder of the shared library that this is part of; none where this is part of the program.
std::optional<fs::path> folder_of_library() {
  Dl_info found;
  std::error_code ignored;
  if (dladdr(reinterpret_cast<const void*>(&find_data_folder), &found) == 0 ||
      fs::equivalent(found.dli_fname, "/proc/self/exe", ignored) ||
      !fs::path(found.dli_fname).has_parent_path()) {
    return std::nullopt;
  }
  return fs::path(found.dli_fname).parent_path();
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
  // PREFIX/bin and PREFIX/lib, or a folder in them: PREFIX/lib/ARCHITECTURE.
  const auto add_prefixes_of = [&](const fs::path& folder) {
    candidates.push_back(folder / "../share/perfmodel/data");
    candidates.push_back(folder / "../../share/perfmodel/data");
  };
  if (const auto folder = folder_of_library()) add_prefixes_of(*folder);
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (!error) add_prefixes_of(program.parent_path());
#ifdef PERFMODEL_SOURCE_DATA
  candidates.push_back(PERFMODEL_SOURCE_DATA);
#endif
  for (const fs::path& folder : candidates) {
    if (holds_data(folder)) return fs::canonical(folder, error);  // a build tree has a link
  }
  return fail(
      ErrorCode::kIo,
      "expected the data folder in share/perfmodel of the program's prefix, found none: set "
      "PERFMODEL_DATA");
}

Result<std::optional<Gpu>> gpu_of_trace(const std::string& name) {
  if (name.empty()) return std::optional<Gpu>();
  const auto data = find_data_folder();
  if (!data) return Unexpected{data.error()};
  auto gpu = find_known_gpu(name, *data / "gpus");
  if (gpu) return std::optional(std::move(*gpu));
  if (gpu.error().code == ErrorCode::kUnknownName) return std::optional<Gpu>();
  return Unexpected{gpu.error()};
}

std::string unknown_gpu(std::string_view name) {
  std::string text = fmt::format("the GPU \"{}\" is not among the known ones (see `gpus`)", name);
  if (const auto reason = why_not_a_board(name); !reason.empty()) {
    text += fmt::format(", as it is {}", reason);
  }
  return text;
}

}  // namespace perfmodel
