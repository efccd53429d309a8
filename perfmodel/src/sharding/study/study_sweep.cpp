#include "study_sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/secrets.hpp"
#include "load_study.hpp"
#include "shard_fields.hpp"

namespace perfmodel::sharding {
namespace {

Result<ShardQuestion> question_at(const SweepQuestion& asked, const std::string& value) {
  const auto axis = std::ranges::find(sweep_axes(), asked.axis, &ShardField::name);
  ShardQuestion question = asked.base;
  if (axis != sweep_axes().end() && set_field(question, *axis, value)) return question;
  return decline(fmt::format("--values: expected values of {}, found {}", asked.axis, value));
}

Result<ShardReport> report_at(const LoadedStudy& loaded, const std::string& plan,
                              const SearchWatch& watch) {
  if (plan.empty()) return search_for_plans(loaded, 1, watch);
  return load_plan(plan, loaded).and_then([&](const std::vector<TablePlacement>& placements) {
    return price_plans(loaded, {{"given", placements}});
  });
}

}  // namespace

Result<std::vector<SweepRow>> sweep_study(const SweepQuestion& asked, const SearchWatch& watch) {
  std::vector<SweepRow> rows;
  for (const std::string& value : asked.values) {
    PERFMODEL_TRY(loaded, question_at(asked, value).and_then(load_study));
    SweepRow& row =
        rows.emplace_back(SweepRow{value, std::make_shared<const LoadedStudy>(std::move(*loaded))});
    auto report = report_at(*row.loaded, asked.plan, watch);
    if (report) {
      row.report = std::move(*report);
    } else {
      row.error = shown_text(report.error().message, kLongestMessage);
    }
  }
  const auto has_report = [](const SweepRow& row) { return row.report.has_value(); };
  if (!rows.empty() && std::ranges::none_of(rows, has_report)) {
    return decline(rows.front().error);
  }
  return rows;
}

}  // namespace perfmodel::sharding
