#include "line_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "svg_parts.hpp"

namespace perfmodel {

using namespace svg;  // elements, axes and colours

namespace {

constexpr double kBandOpacity = 0.15;

struct Range {
  double first = 0, last = 0, most = 0;
};

Result<Range> range_of(const LinePlot& plot) {
  Range range;
  for (const LinePlot::Line& line : plot.lines) {
    for (const auto& [x, y] : line.points) {
      if (!std::isfinite(x) || x <= 0 || !std::isfinite(y) || y < 0) {
        return decline(fmt::format("{}: expected x above 0 and y not below 0, found {} and {}",
                                   line.name, x, y));
      }
      range.first = range.first == 0 ? x : std::min(range.first, x);
      range.last = std::max(range.last, x);
      range.most = std::max(range.most, y);
    }
    for (const auto& [low, high] : line.ranges) {
      if (!std::isfinite(high) || !(low >= 0) || low > high) {
        return decline(
            fmt::format("{}: expected a range from 0 on, found {} to {}", line.name, low, high));
      }
      range.most = std::max(range.most, high);
    }
  }
  if (range.first == 0) return decline("expected points to plot, found none");
  return range;
}

}  // namespace

namespace {

// There along the high ends, back along the low ones.
std::string band_of(const LinePlot::Line& line, const Area& area, const Axis& x, const Axis& y,
                    std::string_view colour) {
  if (line.ranges.size() != line.points.size()) return {};
  std::vector<std::pair<double, double>> there, back;
  for (std::size_t i = 0; i < line.points.size(); ++i) {
    const double at = area.left + x.at(line.points[i].first);
    there.emplace_back(at, area.bottom() - y.at(line.ranges[i].second));
    back.emplace_back(at, area.bottom() - y.at(line.ranges[i].first));
  }
  there.insert(there.end(), back.rbegin(), back.rend());
  return polygon_element(there, colour, kBandOpacity);
}

}  // namespace

Result<SvgPanel> line_panel(const LinePlot& plot) {
  if (plot.lines.size() > kMostLines) {
    return decline(
        fmt::format("expected at most {} lines, found {}", kMostLines, plot.lines.size()));
  }
  PERFMODEL_TRY(range, range_of(plot));
  const Axis x({.scale = Scale::kLog,
                .unit = Unit::kCount,
                .low = range->first,
                .high = range->last,
                .length = plot.width,
                .marks = plot.x_marks});
  const Axis y({.scale = Scale::kLinear,
                .unit = plot.y_unit,
                .side = Side::kLeft,
                .low = 0,
                .high = std::max(plot.y_most.value_or(range->most), 1e-9),
                .length = plot.height});
  const Area area{.left = left_margin(y), .width = x.length(), .height = y.length()};

  std::string data;
  std::vector<LegendEntry> legend;
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    const LinePlot::Line& line = plot.lines[i];
    const std::string_view colour = kColours[i % kColours.size()];
    const std::string_view dashes = i < kColours.size() ? "" : "6 3";
    data += band_of(line, area, x, y, colour);
    auto points = line.points;
    std::sort(points.begin(), points.end());
    for (auto& [at, height] : points) {
      at = area.left + x.at(at);
      height = area.bottom() - y.at(height);
    }
    data += polyline_element(points, colour, dashes);
    data += fmt::format("<g fill=\"{}\">\n", colour);
    for (const auto& [at, height] : points) data += circle_element(at, height, 3);
    data += "</g>\n";
    legend.push_back({.mark = LegendEntry::Mark::kLine,
                      .colour = colour,
                      .name = line.name,
                      .note = line.note,
                      .dashes = dashes});
  }
  if (!plot.legend) legend.clear();
  return make_panel(area, x, y, {.title = plot.title, .x = plot.x_label, .y = plot.y_label}, data,
                    legend);
}

}  // namespace perfmodel
