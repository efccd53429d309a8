#include <fmt/format.h>

#include <cmath>

#include "base/number_text.hpp"
#include "plot/line_plot.hpp"
#include "plot/svg_document.hpp"
#include "sync/sync_workers.hpp"
#include "sync_report.hpp"

namespace perfmodel::cli {
namespace {

using sync::SchemeReport;

/// A figure of each scheme over the slowdowns.
struct SyncPanel {
  LinePlot plot;  ///< without its lines
  double (*value)(const SchemeReport& scheme);
};

Result<SvgPanel> panel_over_slowdown(const std::vector<sync::SweepPoint>& sweep, SyncPanel panel) {
  LinePlot& plot = panel.plot;
  plot.x_label = "steps of the slowest worker, times as long";
  plot.width = 300;
  plot.height = 240;
  for (const sync::SweepPoint& point : sweep) {  // labels of counts are whole numbers
    if (point.slowdown == std::round(point.slowdown)) plot.x_marks.push_back(point.slowdown);
  }
  for (std::size_t s = 0; s < sweep.front().schemes.size(); ++s) {
    LinePlot::Line line{.name = std::string(scheme_name(sweep.front().schemes[s].settings.scheme))};
    for (const sync::SweepPoint& point : sweep) {
      const double y = panel.value(point.schemes[s]);
      if (std::isfinite(y)) line.points.emplace_back(point.slowdown, y);
    }
    if (!line.points.empty()) plot.lines.push_back(std::move(line));
  }
  return line_panel(plot);
}

}  // namespace

Result<std::string> sync_svg(const sync::SyncReport& report) {
  const SyncPanel panels_of_sweep[] = {
      {{.title = "Steps of all workers", .y_label = "steps per second", .legend = false},
       [](const SchemeReport& scheme) { return scheme.run.steps_per_s(); }},
      {{.title = "Waiting",
        .y_label = "share of the workers' time",
        .y_unit = svg::Unit::kPercent,
        .legend = false,
        .y_most = 1},
       [](const SchemeReport& scheme) { return scheme.run.waiting_share(); }},
      {{.title = "Time to the target", .y_label = "time", .y_unit = svg::Unit::kTime},
       [](const SchemeReport& scheme) { return scheme.reached.time_us; }},
  };
  std::vector<SvgPanel> panels;
  for (const SyncPanel& one : panels_of_sweep) {
    PERFMODEL_TRY(panel, panel_over_slowdown(report.sweep, one));
    panels.push_back(std::move(*panel));
  }
  return svg_document(
      fmt::format("Synchronisation of {}", counted(report.job.workers.size(), "worker")),
      fmt::format("predicted by perfmodel; exchange: {}; the last worker is slowed down",
                  exchange_name(report.job.exchange)),
      panels, 3);
}

}  // namespace perfmodel::cli
