#include <fmt/format.h>

#include <cmath>

#include "base/number_text.hpp"
#include "plot/line_plot.hpp"
#include "plot/svg_document.hpp"
#include "sync/sync_workers.hpp"
#include "sync_report.hpp"

namespace perfmodel::cli {
namespace {

template <class Value>
Result<SvgPanel> panel_over_slowdown(const SyncReport& report, LinePlot plot, Value value) {
  plot.x_label = "steps of the slowest worker, times as long";
  for (const SyncSweepPoint& point : report.sweep) {  // labels of counts are whole numbers
    if (point.slowdown == std::round(point.slowdown)) plot.x_marks.push_back(point.slowdown);
  }
  for (std::size_t s = 0; s < report.sweep.front().schemes.size(); ++s) {
    LinePlot::Line line{
        .name = std::string(scheme_name(report.sweep.front().schemes[s].settings.scheme))};
    for (const SyncSweepPoint& point : report.sweep) {
      const double y = value(point.schemes[s]);
      if (std::isfinite(y)) line.points.emplace_back(point.slowdown, y);
    }
    if (!line.points.empty()) plot.lines.push_back(std::move(line));
  }
  return line_panel(plot);
}

}  // namespace

Result<std::string> sync_svg(const SyncReport& report) {
  std::vector<SvgPanel> panels;
  const auto add = [&](LinePlot plot, auto value) -> Result<void> {
    auto panel = panel_over_slowdown(report, std::move(plot), value);
    if (!panel) return Unexpected{panel.error()};
    panels.push_back(std::move(*panel));
    return {};
  };
  const LinePlot plain{.width = 300, .height = 240, .legend = false};
  LinePlot steps = plain, waiting = plain, target = plain;
  steps.title = "Steps of all workers";
  steps.y_label = "steps per second";
  waiting.title = "Waiting";
  waiting.y_label = "share of the workers' time";
  waiting.y_unit = svg::Unit::kPercent;
  waiting.y_most = 1;
  target.title = "Time to the target";
  target.y_label = "time";
  target.y_unit = svg::Unit::kTime;
  target.legend = true;
  const auto steps_per_s = [](const SyncSchemeReport& scheme) {
    return static_cast<double>(scheme.run.steps()) / (scheme.run.time_us / 1e6);
  };
  const auto waiting_share = [](const SyncSchemeReport& s) { return s.run.waiting_share(); };
  const auto to_target = [](const SyncSchemeReport& s) { return s.reached.time_us; };
  if (auto added = add(std::move(steps), steps_per_s); !added) return Unexpected{added.error()};
  if (auto added = add(std::move(waiting), waiting_share); !added) {
    return Unexpected{added.error()};
  }
  if (auto added = add(std::move(target), to_target); !added) return Unexpected{added.error()};
  return svg_document(
      fmt::format("Synchronisation of {}", counted(report.job.workers.size(), "worker")),
      fmt::format("predicted by perfmodel; exchange: {}; the last worker is slowed down",
                  exchange_name(report.job.exchange)),
      panels, 3);
}

}  // namespace perfmodel::cli
