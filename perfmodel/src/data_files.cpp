#include "perfmodel/data_files.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "data_hash.hpp"
#include "installed_data.hpp"

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

// Every byte and the length count. No secret hangs on it, so it need not resist anybody.
void mix(std::uint64_t& hash, std::string_view bytes) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15;
  hash = (hash ^ bytes.size()) * kOdd;
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const std::size_t size = std::min(sizeof word, bytes.size());
    std::memcpy(&word, bytes.data(), size);
    hash = (hash ^ word) * kOdd;
    hash ^= hash >> 29;
    bytes.remove_prefix(size);
  }
}

std::string hash_of_folder(const fs::path& data) {
  std::vector<std::string> names;
  std::error_code failure;
  for (auto at = fs::recursive_directory_iterator(data, failure);
       !failure && at != fs::recursive_directory_iterator(); at.increment(failure)) {
    const std::string name = at->path().lexically_relative(data).generic_string();
    if (name == "measurements" || name == "graphs") at.disable_recursion_pending();
    if (at->is_regular_file(failure)) names.push_back(name);
  }
  std::ranges::sort(names);
  std::uint64_t hash = 1;
  for (const std::string& name : names) {
    std::ifstream file(data / name, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (failure || !file) return {};
    mix(hash, name);
    mix(hash, text);
  }
  return failure ? "" : fmt::format("{:016x}", hash);
}

}  // namespace

const std::string& data_hash() {
  static const std::string hash = [] {
    const auto data = find_data_folder();
    return data ? hash_of_folder(*data) : std::string();
  }();
  return hash;
}

Result<fs::path> find_data_folder() {
  if (const char* given = std::getenv("PERFMODEL_DATA"); given && *given) {
    if (holds_data(given)) return fs::path(given);
    return fail(ErrorCode::kIo,
                "expected a data folder with gpus/ in it (PERFMODEL_DATA), "
                "found none",
                given);
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
  // A program of another project, in a place of its own.
  if (perfmodel_package_data) candidates.push_back(perfmodel_package_data());
  candidates.push_back(kInstalledData);
  candidates.push_back("/usr/share/perfmodel/data");
  for (const fs::path& folder : candidates) {
    if (holds_data(folder)) return fs::canonical(folder, error);  // a build tree has a link
  }
  return fail(
      ErrorCode::kIo,
      fmt::format(
          "expected the data folder in share/perfmodel of the program's prefix, in {} or in "
          "/usr/share/perfmodel/data, found none: set PERFMODEL_DATA",
          kInstalledData));
}

Result<std::optional<Gpu>> gpu_of_trace(const std::string& name) {
  if (name.empty()) return std::optional<Gpu>();
  PERFMODEL_TRY(data, find_data_folder());
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
