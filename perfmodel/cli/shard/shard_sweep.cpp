#include <algorithm>

#include "cli/shared/write_asked.hpp"
#include "report/shard_pictures.hpp"
#include "search_watch.hpp"
#include "shard_arguments.hpp"
#include "shard_report.hpp"
#include "sharding/study/shard_fields.hpp"
#include "sharding/study/shard_results.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

using namespace sharding;

std::string sweep_text(const std::string& axis, const std::vector<SweepRow>& rows) {
  const bool any_error = std::ranges::any_of(rows, [](const SweepRow& row) { return !row.report; });
  TextTable table{"<" + axis,  "time",        "low",    "high",
                  "samples/s", "<limited by", "memory", any_error ? "<impossible" : ""};
  for (const SweepRow& row : rows) {
    if (!row.report) {
      table.row({row.value, "", "", "", "", "", "", shortened(row.error, 40)});
      continue;
    }
    const ReportedPlan one = reported_plans(*row.report).front();
    const auto text = [&](std::string_view name) {
      return named_field(kPlanFields, name).text(one);
    };
    table.row({row.value, text("predicted_us") + text("rating_ms"), text("low_us"), text("high_us"),
               text("samples_per_s"), limit_text(*one.plan),
               percent_of(one.plan->most_memory(), row.report->memory_cap, 0), ""});
  }
  return table.text(bold_allowed());
}

Json sweep_json(const std::string& axis, const std::vector<SweepRow>& rows) {
  Json list = Json::array();
  for (const SweepRow& row : rows) {
    Json item = {{"value", row.value}};
    if (row.report) {
      item["report"] = shard_json(*row.report);
    } else {
      item["error"] = row.error;
    }
    list.push_back(std::move(item));
  }
  Json json = document(schemas::kShardSweep);
  json.update({{"axis", axis}, {"rows", list}});
  return json;
}

}  // namespace

void add_sweep_options(CommandParser app, SweepArguments& arguments) {
  std::vector<std::string> names;
  for (const ShardField& axis : sweep_axes()) names.emplace_back(axis.name);
  app.add_option("--axis NAME", arguments.axis,
                 "world, batch-per-gpu, gpu, dtype, wire-dtype, zipf, reserve, links (times all "
                 "bandwidths) or pooling (times all pooling factors)")
      .required()
      .check(one_of(names));
  app.add_option("--values V,V,...", arguments.values, "Values of the axis").required();
  app.add_option("--csv FILE", arguments.csv, "Write the rows as CSV");
  app.add_option("--plot FILE", arguments.plot, "Write time over the values as SVG");
}

Result<void> run_sweep(const SweepArguments& arguments, bool json) {
  PERFMODEL_TRY(rows, sweep_study(arguments, terminal_watch()));
  const std::string& axis = arguments.axis;
  PERFMODEL_TRY_TO(write_asked(arguments.csv, [&] { return sweep_csv(axis, *rows); }));
  PERFMODEL_TRY_TO(
      write_asked(arguments.plot, [&] { return report_page::sweep_svg(axis, *rows); }));
  if (json) return print_document(sweep_json(axis, *rows));
  return print_report(sweep_text(axis, *rows));
}

}  // namespace perfmodel::cli
