#include "perfmodel/choose_overheads.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "lower_case.hpp"

namespace perfmodel {
namespace {

// A table may come from several GPUs: "A, B".
bool names_gpu(const std::string& names, const Gpu& gpu) {
  for (std::size_t begin = 0; begin < names.size();) {
    const std::size_t end = std::min(names.find(", ", begin), names.size());
    const std::string name = lower_case(names.substr(begin, end - begin));
    if (name == gpu.name || name == lower_case(gpu.title) ||
        std::ranges::any_of(gpu.aliases,
                            [&](const auto& alias) { return lower_case(alias) == name; })) {
      return true;
    }
    begin = end + 2;
  }
  return false;
}

std::string foreign(const ChosenOverheads& chosen, const Gpu& gpu) {
  const std::string& names = chosen.table->gpu;
  if (names_gpu(names, gpu)) return {};
  return "the overheads of " + chosen.file + " were taken on " +
         (names.empty() ? "an unnamed GPU" : names) + ", not on " + gpu.name +
         ": its host and launch times may differ";
}

}  // namespace

Result<ChosenOverheads> OverheadTables::read(const std::filesystem::path& file) {
  auto known = read_.find(file);
  if (known == read_.end()) {
    auto table = read_overheads(file);
    if (!table) return Unexpected{table.error()};
    known = read_.emplace(file, std::make_shared<const OverheadTable>(std::move(*table))).first;
  }
  return ChosenOverheads{.file = file.filename().string(), .table = known->second};
}

Result<ChosenOverheads> OverheadTables::choose(const std::string& file, const Gpu& gpu) {
  std::error_code ignored;
  const auto own = folder_ / (gpu.name + ".json");
  const bool has_own = std::filesystem::is_regular_file(own, ignored);
  if (!file.empty() || has_own) {
    auto chosen = read(file.empty() ? own : std::filesystem::path(file));
    if (chosen) chosen->warning = foreign(*chosen, gpu);
    return chosen;
  }
  const auto pooled = folder_ / "pooled.json";
  if (!std::filesystem::is_regular_file(pooled, ignored)) {
    return Unexpected{Error{
        .code = ErrorCode::kImpossible,
        .message = "expected " + gpu.name + ".json or pooled.json, found neither: give --overheads",
        .file = folder_}};
  }
  auto chosen = read(pooled);
  if (chosen) {
    chosen->warning = "no overheads of " + gpu.name +
                      " are known: those of all machines pooled are used; --overheads takes a "
                      "table made from your own trace";
  }
  return chosen;
}

}  // namespace perfmodel
