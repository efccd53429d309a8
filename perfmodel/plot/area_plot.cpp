#include "area_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "svg_parts.hpp"

namespace perfmodel {

using namespace svg;  // elements, axes and colours

namespace {

constexpr double kAreaWidth = 760;
constexpr double kFarAbove = 4;  // times the largest sum

Result<std::vector<double>> sums_of(const AreaPlot& plot) {
  if (plot.x.empty()) return decline("expected points to plot, found none");
  std::vector<double> sums(plot.x.size());
  for (const AreaPlot::Layer& layer : plot.layers) {
    if (layer.amounts.size() != plot.x.size()) {
      return decline(fmt::format("{}: expected {} amounts, found {}", layer.name, plot.x.size(),
                                 layer.amounts.size()));
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const double amount = layer.amounts[i];
      if (!std::isfinite(amount) || amount < 0) {
        return decline(
            fmt::format("{}: expected amounts not below 0, found {}", layer.name, amount));
      }
      sums[i] += amount;
    }
  }
  return sums;
}

/// Keeps one point per pixel: the one with the largest sum, then the largest first layer.
std::vector<std::size_t> drawn_points(const AreaPlot& plot, const std::vector<double>& sums,
                                      const Axis& x) {
  const auto larger = [&](std::size_t a, std::size_t b) {
    if (sums[a] != sums[b] || plot.layers.empty()) return sums[a] > sums[b];
    return plot.layers.front().amounts[a] > plot.layers.front().amounts[b];
  };
  std::vector<std::size_t> drawn;
  double pixel = -1;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const double here = std::floor(x.at(plot.x[i]));
    if (drawn.empty() || here != pixel) {
      drawn.push_back(i);
      pixel = here;
    } else if (larger(i, drawn.back())) {
      drawn.back() = i;
    }
  }
  return drawn;
}

using Points = std::vector<std::pair<double, double>>;

/// The staircase over `heights`, one per drawn point, without points within a level.
Points staircase(const std::vector<double>& at, const std::vector<double>& heights, double end) {
  Points points;
  for (std::size_t i = 0; i < at.size(); ++i) {
    const bool is_last = i + 1 == at.size();
    if (i == 0 || heights[i] != heights[i - 1]) points.emplace_back(at[i], heights[i]);
    if (is_last || heights[i] != heights[i + 1]) {
      points.emplace_back(is_last ? end : at[i + 1], heights[i]);
    }
  }
  return points;
}

}  // namespace

Result<SvgPanel> area_panel(const AreaPlot& plot) {
  if (plot.layers.size() > kColours.size()) {
    return decline(
        fmt::format("expected at most {} layers, found {}", kColours.size(), plot.layers.size()));
  }
  PERFMODEL_TRY(sums, sums_of(plot));
  const double most = std::max(*std::ranges::max_element(*sums), 1e-9);
  const bool has_level = plot.level && plot.level->amount < kFarAbove * most;
  const Axis x({.scale = Scale::kLinear,
                .unit = plot.x_unit,
                .low = plot.x.front(),
                .high = std::max(plot.x.back(), plot.x.front() + 1e-9),
                .length = kAreaWidth});
  const Axis y({.scale = Scale::kLinear,
                .unit = Unit::kCount,
                .side = Side::kLeft,
                .low = 0,
                .high = has_level ? std::max(most, plot.level->amount) : most,
                .length = kPlotHeight});
  const Area area{.left = left_margin(y), .width = x.length()};
  const std::vector<std::size_t> drawn = drawn_points(plot, *sums, x);
  std::vector<double> at, low(drawn.size(), area.bottom());
  for (std::size_t point : drawn) at.push_back(area.left + x.at(plot.x[point]));
  const double end = area.left + x.at(plot.x.back());

  std::string data;
  std::vector<LegendEntry> legend;
  std::vector<double> amounts(drawn.size());
  for (std::size_t l = 0; l < plot.layers.size(); ++l) {
    const AreaPlot::Layer& layer = plot.layers[l];
    std::vector<double> high(drawn.size());
    for (std::size_t i = 0; i < drawn.size(); ++i) {
      amounts[i] += layer.amounts[drawn[i]];
      high[i] = area.bottom() - y.at(amounts[i]);
    }
    Points outline = staircase(at, high, end);
    const Points below = staircase(at, low, end);
    outline.insert(outline.end(), below.rbegin(), below.rend());
    data += polygon_element(outline, kColours[l], 0.85);
    legend.push_back({.mark = LegendEntry::Mark::kSwatch,
                      .colour = kColours[l],
                      .name = layer.name,
                      .opacity = 0.85});
    low = std::move(high);
  }
  std::ranges::reverse(legend);  // as they lie
  if (has_level) {
    const double height = area.bottom() - y.at(plot.level->amount);
    data += line_element(area.left, height, area.right(), height, kInk, 1.5, "6 3");
    legend.push_back({.mark = LegendEntry::Mark::kLine,
                      .colour = kInk,
                      .name = plot.level->name,
                      .dashes = "6 3"});
  }
  return make_panel(area, x, y, {.title = plot.title, .x = plot.x_label, .y = plot.y_label}, data,
                    legend);
}

}  // namespace perfmodel
