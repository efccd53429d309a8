#include "report/shard_pictures.hpp"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "base/decimal_number.hpp"
#include "base/plain_text.hpp"
#include "plot/bar_plot.hpp"
#include "plot/line_plot.hpp"
#include "plot/svg_document.hpp"
#include "sharding/study/plan_words.hpp"

namespace perfmodel::report_page {
namespace {

using namespace sharding;

constexpr std::size_t kMostBars = 64;

// Time of a batch over the number of GPUs; the hashed plan's counts its iterations.
Result<SvgPanel> compression_panel(const CompressionReport& compression) {
  LinePlot plot{.title = "Hashed array and shards",
                .x_label = "GPUs",
                .y_label = "time per batch",
                .y_unit = svg::Unit::kTime};
  LinePlot::Line sharded{.name = "sharded", .points = {}};
  LinePlot::Line hashed{.name = fmt::format("hashed {:.4g}x", compression.factor()), .points = {}};
  if (compression.iterations_multiplier != 1) {
    hashed.note = fmt::format("{:g} iterations for one", compression.iterations_multiplier);
  }
  for (const CompressionReport::Row& row : compression.rows) {
    const auto gpus = static_cast<double>(row.world);
    plot.x_marks.push_back(gpus);
    if (row.sharded_us) sharded.points.emplace_back(gpus, *row.sharded_us);
    if (row.hashed_us) {
      hashed.points.emplace_back(gpus, *row.hashed_us * compression.iterations_multiplier);
    }
  }
  for (LinePlot::Line* line : {&sharded, &hashed}) {
    if (!line->points.empty()) plot.lines.push_back(std::move(*line));
  }
  return line_panel(plot);
}

// Bars of time; an answer that does not fit has a bar of no length and says so.
Result<SvgPanel> time_panel(const std::vector<StudyAnswer>& rows) {
  BarPlot plot{.title = "Time per batch",
               .x_label = "time per batch",
               .unit = svg::Unit::kTime,
               .bars = {},
               .groups = {"fits", "does not fit"}};
  for (const StudyAnswer& row : rows) {
    plot.bars.push_back({.name = row.name,
                         .note = row.fits() ? time_text(row.us) : "does not fit",
                         .value = row.fits() ? row.us : 0,
                         .group = row.fits() ? std::size_t{0} : std::size_t{1}});
  }
  return bar_panel(plot);
}

// Samples per second over numbers of GPUs; numbers that do not fit are on the axis.
Result<SvgPanel> scale_panel(const std::vector<StudyAnswer>& rows) {
  LinePlot plot{.title = "Samples per second over GPUs",
                .x_label = "GPUs",
                .y_label = "million samples per second"};
  LinePlot::Line good{.name = "best plan"}, bad{.name = "does not fit"};
  for (const StudyAnswer& row : rows) {
    const auto x = static_cast<double>(row.world);
    plot.x_marks.push_back(x);
    if (row.fits()) {
      good.points.emplace_back(x, row.samples_per_s / 1e6);
    } else {
      bad.points.emplace_back(x, 0.0);
    }
  }
  for (LinePlot::Line* line : {&good, &bad}) {
    if (!line->points.empty()) plot.lines.push_back(std::move(*line));
  }
  return line_panel(plot);
}

Result<std::string> picture(const std::string& title, const Result<SvgPanel>& panel) {
  return panel.and_then([&](const SvgPanel& one) { return svg_document(title, "", {one}, 1); });
}

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : plain_text(text)) {
    html += c == '<'   ? "&lt;"
            : c == '>' ? "&gt;"
            : c == '&' ? "&amp;"
            : c == '"' ? "&quot;"
                       : std::string(1, c);
  }
  return html;
}

std::string answer_html(const StudyAnswer& answer, double memory_cap) {
  if (!answer.fits()) {
    return fmt::format(
        "<tr class=\"no\"><td>{}</td><td>does not fit</td><td></td><td></td><td></td>"
        "<td class=\"text\">{}</td></tr>\n",
        escaped(answer.name), escaped(answer.error));
  }
  constexpr std::size_t kFigures = 4;  // then text
  std::string row = "<tr>";
  const std::vector<std::string> cells = answer_cells(answer, memory_cap);
  for (std::size_t i = 0; i < cells.size(); ++i) {
    row += fmt::format("<td{}>{}</td>", i < kFigures ? "" : " class=\"text\"", escaped(cells[i]));
  }
  return row + "</tr>\n";
}

}  // namespace

Result<std::string> shard_svg(const ShardReport& report) {
  const LoadedStudy& loaded = *report.loaded;
  const PricedPlan& plan = report.plans.front();
  BarPlot load{.title = plan.rating ? "Rating of each GPU" : "Lookups of each GPU",
               .x_label = plan.rating ? "TorchRec's estimate" : "time per batch",
               .unit = svg::Unit::kTime,
               .bars = {},
               .groups = {"load"}};
  BarPlot memory{.title = "Memory of each GPU",
                 .x_label = fmt::format("share of {}", bytes_text(report.memory_cap)),
                 .unit = svg::Unit::kPercent,
                 .bars = {},
                 .groups = {"memory"}};
  std::vector<RankLoad> ranks = rank_loads(plan);
  if (ranks.size() > kMostBars) {
    sort_by_load(ranks);
    ranks.resize(kMostBars);
  }
  for (const RankLoad& rank : ranks) {
    const std::string name = fmt::format("GPU {}", rank.rank);
    const double us = plan.rating ? 1000 * rank.load : rank.load;
    load.bars.push_back({.name = name, .note = time_text(us), .value = us});
    memory.bars.push_back(
        {.name = name, .note = bytes_text(rank.memory), .value = rank.memory / report.memory_cap});
  }
  PERFMODEL_TRY(left, bar_panel(load));
  PERFMODEL_TRY(right, bar_panel(memory));
  const std::string subtitle =
      plan.time ? fmt::format("{} per batch, {} x {}", time_text(plan.time->predicted_us),
                              *loaded.study.world, loaded.gpu.name)
                : fmt::format("rating {:.4g} ms, {} x {}", plan.cost(), *loaded.study.world,
                              loaded.gpu.name);
  std::vector<SvgPanel> panels = {*left, *right};
  if (report.compression) {
    PERFMODEL_TRY(third, compression_panel(*report.compression));
    panels.push_back(std::move(*third));
  }
  return svg_document(
      "Sharding of " + (loaded.study.name.empty() ? loaded.file : loaded.study.name), subtitle,
      panels, 2);
}

Result<std::string> sweep_svg(const std::string& axis, const std::vector<SweepRow>& rows) {
  LinePlot plot{.title = "Time per batch over " + axis, .x_label = axis, .y_label = "time"};
  plot.lines.push_back({.name = "best plan"});
  for (const SweepRow& row : rows) {
    double x = 0;
    if (row.report && read_decimal(row.value, x) && x > 0) {
      plot.lines.front().points.emplace_back(x, row.report->plans.front().cost());
    }
  }
  return picture("Sharding over " + axis, line_panel(plot));
}

Result<std::vector<StudyDrawing>> study_drawings(const StudyAnswers& answers) {
  std::vector<StudyDrawing> drawings;
  for (const StudySection& section : kStudySections) {
    const std::vector<StudyAnswer>& rows = answers.*section.rows;
    if (rows.empty()) continue;
    PERFMODEL_TRY(svg, picture(section.title, time_panel(rows)));
    drawings.push_back({section.drawing, std::move(*svg)});
  }
  PERFMODEL_TRY(svg, picture("Scaling", scale_panel(answers.worlds)));
  drawings.push_back({"scaling", std::move(*svg)});
  return drawings;
}

std::string study_html(const StudyAnswers& answers, const std::vector<StudyDrawing>& drawings) {
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width\">\n<title>Sharding study</title>\n"
      "<style>\nbody { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; "
      "padding: 0 1em; color: #222; }\ntable { border-collapse: collapse; margin: 0.5em 0 1.5em; "
      "}\n"
      "th, td { text-align: right; padding: 0.2em 0.8em; border-bottom: 1px solid #ddd; }\n"
      "th:first-child, th:nth-last-child(-n+2), td:first-child, td.text { text-align: left; }\n"
      "tr.no td { color: #a33; }\n.wide { overflow-x: auto; }\nsvg { max-width: 100%; height: "
      "auto; }\n</style>\n</head>\n"
      "<body>\n<h1>Sharding study</h1>\n";
  html += "<p>" + escaped(answers.headline) + "</p>\n";
  for (const std::string& note : answers.notes) html += "<p>Note: " + escaped(note) + "</p>\n";
  html += "<ul>\n";
  for (const std::string& finding : answers.findings) {
    html += "<li>" + escaped(finding) + "</li>\n";
  }
  html += "</ul>\n";
  std::size_t next = 0;
  for (const StudySection& section : kStudySections) {
    const std::vector<StudyAnswer>& rows = answers.*section.rows;
    if (rows.empty()) continue;
    html += fmt::format(
        "<h2>{}</h2>\n<div class=\"wide\"><table>\n<tr><th>{}</th><th>time per "
        "batch</th><th>samples per second</th>"
        "<th>memory of the fullest GPU</th><th>limited by</th><th>plan</th></tr>\n",
        section.title, section.axis);
    for (const StudyAnswer& row : rows) html += answer_html(row, answers.memory_cap);
    html += "</table></div>\n";
    if (next < drawings.size()) html += drawings[next++].svg + "\n";
  }
  while (next < drawings.size()) html += drawings[next++].svg + "\n";
  return html + "</body>\n</html>\n";
}

}  // namespace perfmodel::report_page
