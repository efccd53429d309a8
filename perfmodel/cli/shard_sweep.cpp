#include "shard_sweep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "base/secrets.hpp"
#include "plot/line_plot.hpp"
#include "plot/svg_document.hpp"
#include "shard_plans.hpp"
#include "terminal/cli11.hpp"
#include "terminal/output.hpp"
#include "terminal/text_table.hpp"

namespace perfmodel::cli {
namespace {

using namespace sharding;

struct Row {
  std::string value;
  std::string error;  // what is impossible there
  std::optional<ShardReport> report;
  std::int64_t samples = 0;  // per batch, all GPUs

  double cost() const { return report->plans.front().cost(); }
};

using SetValue = bool (*)(ShardArguments&, const std::string&);

template <class Number>
std::optional<Number> number(const std::string& text) {
  Number value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

template <auto kMember>
bool set_count(ShardArguments& arguments, const std::string& text) {
  const auto value = number<std::int64_t>(text);
  if (!value || *value < 1) return false;
  arguments.*kMember = *value;
  return true;
}

template <auto kMember>
bool set_number(ShardArguments& arguments, const std::string& text) {
  const auto value = number<double>(text);
  if (!value || !(*value >= 0) || !std::isfinite(*value)) return false;
  arguments.*kMember = *value;
  return true;
}

template <auto kMember>
bool set_text(ShardArguments& arguments, const std::string& text) {
  arguments.*kMember = text;
  return !text.empty();
}

const std::map<std::string, SetValue>& axes() {
  static const std::map<std::string, SetValue> all = {
      {"world", set_count<&ShardArguments::world>},
      {"batch-per-gpu", set_count<&ShardArguments::batch>},
      {"gpu", set_text<&ShardArguments::gpu>},
      {"dtype", set_text<&ShardArguments::dtype>},
      {"wire-dtype", set_text<&ShardArguments::wire_dtype>},
      {"zipf", set_number<&ShardArguments::zipf>},
      {"reserve", set_number<&ShardArguments::free_share>},
      {"links", set_number<&ShardArguments::link_scale>},
      {"pooling", set_number<&ShardArguments::pooling_scale>}};
  return all;
}

Result<ShardReport> answer(const LoadedStudy& loaded, const ShardArguments& arguments,
                           const std::vector<std::string>& plans) {
  if (plans.empty()) return search_for_plans(loaded, arguments, 1);
  auto placements = load_plan(plans.front(), loaded);
  if (!placements) return Unexpected{placements.error()};
  return price_plans(loaded, arguments, {{"given", std::move(*placements)}});
}

double most_memory(const ReportedPlan& plan) {
  double most = 0;
  if (plan.time) {
    for (const BatchRank& rank : plan.time->ranks) most = std::max(most, rank.memory.total());
  }
  if (plan.rating) most = static_cast<double>(plan.rating->largest_hbm());
  return most;
}

std::string sweep_text(const std::string& axis, const std::vector<Row>& rows) {
  const bool any_error = std::ranges::any_of(rows, [](const Row& row) { return !row.report; });
  TextTable table{"<" + axis,  "time",        "low",    "high",
                  "samples/s", "<limited by", "memory", any_error ? "<impossible" : ""};
  for (const Row& row : rows) {
    if (!row.report) {
      table.row({row.value, "", "", "", "", "", "", shortened(row.error, 40)});
      continue;
    }
    const ReportedPlan& plan = row.report->plans.front();
    const double memory = most_memory(plan);
    std::vector<std::string> cells = {row.value};
    if (plan.time) {
      const BatchTime& time = *plan.time;
      cells.insert(cells.end(),
                   {time_text(time.predicted_us), time_text(time.low_us), time_text(time.high_us),
                    samples_text(static_cast<double>(row.samples) / time.predicted_us * 1e6),
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

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (char c : text) {
    if (c == '"') result += '"';
    result += c;
  }
  return result + "\"";
}

std::string sweep_csv(const std::string& axis, const std::vector<Row>& rows) {
  std::string text =
      axis + ",predicted_us,low_us,high_us,rating_ms,limited_by,memory_bytes,error\n";
  for (const Row& row : rows) {
    if (!row.report) {
      text += fmt::format("{},,,,,,,{}\n", row.value, quoted(row.error));
      continue;
    }
    const ReportedPlan& plan = row.report->plans.front();
    if (plan.time) {
      text += fmt::format("{},{:.3f},{:.3f},{:.3f},,{},{:.0f},\n", row.value,
                          plan.time->predicted_us, plan.time->low_us, plan.time->high_us,
                          to_string(plan.advice->bottleneck), most_memory(plan));
    } else {
      text += fmt::format("{},,,,{:.6g},GPU {},{:.0f},\n", row.value, plan.rating->rating_ms(),
                          plan.rating->slowest_rank(), most_memory(plan));
    }
  }
  return text;
}

Json sweep_json(const std::string& axis, const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) {
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

Result<void> draw(const std::string& axis, const std::vector<Row>& rows, const std::string& file) {
  LinePlot plot{.title = "Time per batch over " + axis, .x_label = axis, .y_label = "time"};
  plot.lines.push_back({.name = "best plan"});
  for (const Row& row : rows) {
    const auto x = number<double>(row.value);
    if (row.report && x && *x > 0) plot.lines.front().points.emplace_back(*x, row.cost());
  }
  const auto panel = line_panel(plot);
  if (!panel) return Unexpected{panel.error()};
  const auto svg = svg_document("Sharding over " + axis, "", {*panel}, 1);
  if (!svg) return Unexpected{svg.error()};
  return write_file(file, *svg);
}

}  // namespace

void add_sweep_options(CLI::App& app, SweepArguments& arguments) {
  std::vector<std::string> names;
  for (const auto& [name, set] : axes()) names.push_back(name);
  app.add_option("--axis", arguments.axis,
                 "world, batch-per-gpu, gpu, dtype, wire-dtype, zipf, reserve, links (times all "
                 "bandwidths) or pooling (times all pooling factors)")
      ->required()
      ->check(CLI::IsMember(names))
      ->type_name("NAME");
  app.add_option("--values", arguments.values, "Values of the axis")
      ->required()
      ->delimiter(',')
      ->type_name("V,V,...");
  app.add_option("--csv", arguments.csv, "Write the rows as CSV")->type_name("FILE");
  app.add_option("--plot", arguments.plot, "Write time over the values as SVG")->type_name("FILE");
}

Result<void> run_sweep(const ShardArguments& study, const SweepArguments& sweep,
                       const std::vector<std::string>& plans) {
  std::vector<Row> rows;
  std::vector<std::unique_ptr<LoadedStudy>> kept;  // reports point to them
  for (const std::string& value : sweep.values) {
    ShardArguments arguments = study;
    if (!axes().at(sweep.axis)(arguments, value)) {
      return fail(ErrorCode::kImpossible,
                  fmt::format("--values: expected values of {}, found {}", sweep.axis, value));
    }
    auto loaded = load_study(arguments);
    if (!loaded) return Unexpected{loaded.error()};
    kept.push_back(std::make_unique<LoadedStudy>(std::move(*loaded)));
    Row row{.value = value,
            .error = {},
            .report = {},
            .samples = *kept.back()->study.world * *kept.back()->study.batch_per_rank};
    auto report = answer(*kept.back(), arguments, plans);
    if (report) {
      row.report = std::move(*report);
    } else {
      row.error = shown_text(report.error().message, kLongestMessage);
    }
    rows.push_back(std::move(row));
  }
  const bool nothing =
      std::all_of(rows.begin(), rows.end(), [](const Row& row) { return !row.report; });
  if (nothing && !rows.empty()) return fail(ErrorCode::kImpossible, rows.front().error);
  if (!sweep.csv.empty()) {
    if (auto written = write_file(sweep.csv, sweep_csv(sweep.axis, rows)); !written) return written;
  }
  if (!sweep.plot.empty()) {
    if (auto drawn = draw(sweep.axis, rows, sweep.plot); !drawn) return drawn;
  }
  if (study.json) return print_document(sweep_json(sweep.axis, rows));
  return print_report(sweep_text(sweep.axis, rows));
}

}  // namespace perfmodel::cli
