#include "shard_sweep.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/decimal_number.hpp"
#include "json/csv_file.hpp"
#include "plot/line_plot.hpp"
#include "plot/svg_document.hpp"
#include "search_watch.hpp"
#include "shard_report.hpp"
#include "sharding/study/plan_words.hpp"
#include "sharding/study/shard_fields.hpp"
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
    const PricedPlan& plan = row.report->plans.front();
    const double memory = plan.most_memory();
    std::vector<std::string> cells = {row.value};
    if (plan.time) {
      const BatchTime& time = *plan.time;
      cells.insert(cells.end(),
                   {time_text(time.predicted_us), time_text(time.low_us), time_text(time.high_us),
                    samples_text(row.loaded->samples_per_s(time.predicted_us)),
                    std::string(to_string(plan.advice->bottleneck))});
    } else {
      cells.insert(cells.end(), {fmt::format("{:.4g} ms", plan.rating->rating_ms()), "", "", "",
                                 fmt::format("GPU {}", plan.rating->slowest_rank())});
    }
    cells.push_back(percent_of(memory, row.report->memory_cap, 0));
    cells.push_back("");
    table.row(std::move(cells));
  }
  return table.text(bold_allowed());
}

std::string sweep_csv(const std::string& axis, const std::vector<SweepRow>& rows) {
  std::string text =
      axis + ",predicted_us,low_us,high_us,rating_ms,limited_by,memory_bytes,error\n";
  for (const SweepRow& row : rows) {
    if (!row.report) {
      text += fmt::format("{},,,,,,,{}\n", row.value, csv_quoted(row.error));
      continue;
    }
    const PricedPlan& plan = row.report->plans.front();
    if (plan.time) {
      text += fmt::format("{},{:.3f},{:.3f},{:.3f},,{},{:.0f},\n", row.value,
                          plan.time->predicted_us, plan.time->low_us, plan.time->high_us,
                          to_string(plan.advice->bottleneck), plan.most_memory());
    } else {
      text += fmt::format("{},,,,{:.6g},GPU {},{:.0f},\n", row.value, plan.rating->rating_ms(),
                          plan.rating->slowest_rank(), plan.most_memory());
    }
  }
  return text;
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

Result<void> draw(const std::string& axis, const std::vector<SweepRow>& rows,
                  const std::string& file) {
  LinePlot plot{.title = "Time per batch over " + axis, .x_label = axis, .y_label = "time"};
  plot.lines.push_back({.name = "best plan"});
  for (const SweepRow& row : rows) {
    double x = 0;
    if (row.report && read_decimal(row.value, x) && x > 0) {
      plot.lines.front().points.emplace_back(x, row.report->plans.front().cost());
    }
  }
  const auto panel = line_panel(plot);
  if (!panel) return Unexpected{panel.error()};
  const auto svg = svg_document("Sharding over " + axis, "", {*panel}, 1);
  if (!svg) return Unexpected{svg.error()};
  return write_file(file, *svg);
}

}  // namespace

void add_sweep_options(CommandParser app, SweepArguments& arguments) {
  std::vector<std::string> names;
  for (const ShardField& axis : sweep_axes()) names.emplace_back(axis.name);
  app.add_option("--axis", arguments.axis,
                 "world, batch-per-gpu, gpu, dtype, wire-dtype, zipf, reserve, links (times all "
                 "bandwidths) or pooling (times all pooling factors)")
      .required()
      .check(one_of(names))
      .type_name("NAME");
  app.add_option("--values", arguments.values, "Values of the axis")
      .required()
      .delimiter(',')
      .type_name("V,V,...");
  app.add_option("--csv", arguments.csv, "Write the rows as CSV").type_name("FILE");
  app.add_option("--plot", arguments.plot, "Write time over the values as SVG").type_name("FILE");
}

Result<void> run_sweep(const SweepArguments& arguments, bool json) {
  const auto rows = sweep_study(arguments, terminal_watch());
  if (!rows) return Unexpected{rows.error()};
  const std::string& axis = arguments.axis;
  if (!arguments.csv.empty()) {
    if (auto written = write_file(arguments.csv, sweep_csv(axis, *rows)); !written) return written;
  }
  if (!arguments.plot.empty()) {
    if (auto drawn = draw(axis, *rows, arguments.plot); !drawn) return drawn;
  }
  if (json) return print_document(sweep_json(axis, *rows));
  return print_report(sweep_text(axis, *rows));
}

}  // namespace perfmodel::cli
