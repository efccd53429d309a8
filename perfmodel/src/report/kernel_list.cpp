#include <fmt/format.h>

#include <utility>

#include "base/statistics.hpp"
#include "explain/inflated_text.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "report/report_page.hpp"
#include "report/step_account.hpp"

namespace perfmodel::report_page {
namespace {

std::filesystem::path times_next_to(const std::filesystem::path& file) {
  std::string name = file.filename().string();
  name.replace(name.rfind(".kernels.json"), std::string_view(".kernels").size(), ".times");
  return file.parent_path() / name;
}

Result<Json> read_inflated_json(const std::filesystem::path& file, const char* what) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 26;
  PERFMODEL_TRY(text, inflated_text(file, kMostBytes));
  Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_discarded()) return json;
  return fail(ErrorCode::kSyntax, fmt::format("expected {}, found broken JSON", what), file);
}

// The steps' times on the device, which ran freely.
Result<double> median_step_us(const std::filesystem::path& file) {
  PERFMODEL_TRY(json, read_inflated_json(file, "times of steps"));
  std::vector<double> times;
  const Json none;
  const Json& list = json->is_object() && json->contains("free") ? (*json)["free"] : none;
  if (list.is_object() && list.contains("device") && list["device"].is_array()) {
    for (const Json& time : list["device"]) {
      if (time.is_number()) times.push_back(time.get<double>());
    }
  }
  if (times.empty()) {
    return fail(ErrorCode::kFormat, "/free/device: expected times of steps, found none", file);
  }
  return median_of(std::move(times));
}

Result<AccountRow> listed_kernel(const Json& item, const std::filesystem::path& file) {
  if (!item.is_object() || !item.contains("name") || !item["name"].is_string() ||
      !item.value("per_step", Json()).is_number() || !item.value("mean_us", Json()).is_number()) {
    return fail(ErrorCode::kFormat, "expected kernels with name, per_step and mean_us", file);
  }
  const auto name = item["name"].get<std::string>();
  const Json kind = item.value("kind", Json("kernel"));
  AccountRow row{.kernel = name, .count = item["per_step"].get<double>()};
  row.us = row.count * item["mean_us"].get<double>();
  row.part = kStepParts[kind == "copy" ? 2 : is_collective_kernel(name) ? 1 : 0];
  const auto family = kernel_family_of_name(name).value_or(
      is_collective_kernel(name) ? KernelFamily::kCollective : KernelFamily::kSmall);
  row.family = to_string(kind == "copy"  ? KernelFamily::kCopy
                         : kind == "set" ? KernelFamily::kSet
                                         : family);
  return row;
}

}  // namespace

bool is_kernel_list(const std::filesystem::path& file) {
  const std::string name = file.filename().string();
  return name.ends_with(".kernels.json") || name.ends_with(".kernels.json.gz");
}

Result<StepAccount> account_of_kernel_list(const std::filesystem::path& file) {
  PERFMODEL_TRY(json, read_inflated_json(file, "a list of kernels"));
  if (!json->is_array()) return fail(ErrorCode::kFormat, "expected a list of kernels", file);
  PERFMODEL_TRY(step_us, median_step_us(times_next_to(file)));
  StepAccount made{.name = file.filename().string(), .step_us = *step_us};
  double rest = *step_us;
  for (const Json& item : *json) {
    PERFMODEL_TRY(row, listed_kernel(item, file));
    rest -= row->us;
    made.rows.push_back(std::move(*row));
  }
  if (rest < 0) {
    return decline(fmt::format("expected kernels of at most the step's {:.0f} us, found {:.0f} us",
                               *step_us, *step_us - rest),
                   file);
  }
  made.rows.push_back({.part = std::string(kStepParts[kIdlePart]), .us = rest});
  return made;
}

}  // namespace perfmodel::report_page
