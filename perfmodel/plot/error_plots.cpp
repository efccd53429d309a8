#include "error_plots.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "base/accuracy.hpp"
#include "base/number_text.hpp"
#include "base/random_sample.hpp"
#include "base/statistics.hpp"
#include "svg_parts.hpp"

namespace perfmodel {
namespace {

using namespace svg;  // elements, axes and colours

constexpr double kShortestUs = 1e-9, kLongestUs = 1e15;  // a femtosecond, thirty years
constexpr double kWorstError = 3;                        // where signed errors are cut off
constexpr double kCounts = 18;  // room for the numbers of rows above the bins
constexpr std::size_t kRowsPerBox = 5;
constexpr std::size_t kSlices = 8;  // per group, drawn in turns so that none hides the others

/// 999, 1.2k, 12k, 3.4M.
std::string compact(std::size_t number) {
  const auto value = static_cast<double>(number);
  if (value < 1e3) return fmt::format("{}", number);
  if (value < 9.95e3) return fmt::format("{:.1f}k", value / 1e3);
  if (value < 999.5e3) return fmt::format("{:.0f}k", value / 1e3);
  return fmt::format("{:.1f}M", value / 1e6);
}

std::string error_text(double share) {
  const double value = share * 100;
  return value < 99.95 ? fmt::format("{:.1f} %", value) : fmt::format("{:.4g} %", value);
}

std::string signed_error_text(double share) {
  const double value = std::abs(share * 100);
  if (value < 0.05) return "0 %";
  return fmt::format("{}{} %", share < 0 ? "−" : "+",
                     value < 99.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.4g}", value));
}

// Validation.

bool positive(double value) { return std::isfinite(value) && value > 0; }

Result<void> check_times(const std::string& name, const std::vector<double>& measured_us,
                         const std::vector<double>& predicted_us) {
  const std::string what = name.empty() ? "" : name + ", ";
  if (measured_us.size() != predicted_us.size()) {
    return decline(fmt::format("{}expected as many predicted as measured times ({}), found {}",
                               what, measured_us.size(), predicted_us.size()));
  }
  const auto drawable = [](double time) { return time >= kShortestUs && time <= kLongestUs; };
  for (std::size_t row = 0; row < measured_us.size(); ++row) {
    if (drawable(measured_us[row]) && drawable(predicted_us[row])) continue;
    return decline(fmt::format("{}row {}: expected times from {} to {} µs, found {} and {}", what,
                               row, kShortestUs, kLongestUs, measured_us[row], predicted_us[row]));
  }
  return {};
}

// Scatter.

/// The strip |predicted / measured - 1| <= share of a square plot, cut off at its edges.
std::string band_element(const Area& area, const Axis& axis, double share, double opacity) {
  const double zero = axis.at(1);
  const double up = axis.at(1 + share) - zero, down = zero - axis.at(1 - share);
  return polygon_element({{area.left, area.bottom()},
                          {area.left, area.bottom() - up},
                          {area.right() - up, area.top},
                          {area.right(), area.top},
                          {area.right(), area.top + down},
                          {area.left + down, area.bottom()}},
                         kBand, opacity);
}

struct ColouredGroup {
  std::string_view colour;
  std::string name;
  std::vector<double> measured_us, predicted_us;
  std::vector<std::size_t> shown;  // rows
};

void append(ColouredGroup& to, const TimeGroup& from) {
  to.measured_us.insert(to.measured_us.end(), from.measured_us.begin(), from.measured_us.end());
  to.predicted_us.insert(to.predicted_us.end(), from.predicted_us.begin(), from.predicted_us.end());
}

/// In the given order, the grey rest last; groups without rows are left out.
std::vector<ColouredGroup> coloured(const std::vector<TimeGroup>& groups) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].measured_us.empty()) order.push_back(i);
  }
  std::vector<std::size_t> others;
  if (order.size() > kColours.size()) {
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return groups[a].measured_us.size() > groups[b].measured_us.size();
    });
    others.assign(order.begin() + kColours.size(), order.end());
    order.resize(kColours.size());
    std::sort(order.begin(), order.end());
    std::sort(others.begin(), others.end());
  }
  std::vector<ColouredGroup> result;
  for (std::size_t index : order) {
    result.push_back({.colour = kColours[result.size()], .name = groups[index].name});
    append(result.back(), groups[index]);
  }
  if (!others.empty()) {
    result.push_back({.colour = kOtherColour, .name = fmt::format("{} others", others.size())});
    for (std::size_t index : others) append(result.back(), groups[index]);
  }
  return result;
}

}  // namespace

Result<SvgPanel> scatter_panel(const ScatterPlot& plot) {
  std::size_t rows = 0;
  double low = 0, high = 0;
  for (const TimeGroup& group : plot.groups) {
    if (auto valid = check_times(group.name, group.measured_us, group.predicted_us); !valid) {
      return tl::make_unexpected(std::move(valid.error()));
    }
    for (const auto* times : {&group.measured_us, &group.predicted_us}) {
      for (double time : *times) {
        low = low == 0 ? time : std::min(low, time);
        high = std::max(high, time);
      }
    }
    rows += group.measured_us.size();
  }
  if (rows == 0 || plot.max_points == 0) {
    return decline("expected at least one point to draw, found none");
  }

  const Axis axis(
      {.scale = Scale::kLog, .unit = Unit::kTime, .low = low, .high = high, .length = kPlotHeight});
  const Area area{.left = left_margin(axis), .width = kPlotHeight};

  std::vector<ColouredGroup> groups = coloured(plot.groups);
  std::vector<LegendEntry> legend;
  std::size_t drawn = 0;
  for (ColouredGroup& group : groups) {
    const std::size_t size = group.measured_us.size();
    const double share =
        std::min(1.0, static_cast<double>(plot.max_points) / static_cast<double>(rows));
    const auto count = static_cast<std::size_t>(std::ceil(share * static_cast<double>(size)));
    group.shown = random_sample(size, count, 0);
    drawn += group.shown.size();
    PERFMODEL_TRY(errors, summarize_errors(group.measured_us, group.predicted_us));
    legend.push_back({.mark = LegendEntry::Mark::kDot,
                      .colour = group.colour,
                      .name = group.name,
                      .note = fmt::format("{} {}, MAPE {}", grouped(size),
                                          size == 1 ? "row" : "rows", error_text(errors->mape))});
  }
  legend.push_back({.mark = LegendEntry::Mark::kSwatch,
                    .colour = kBand,
                    .name = "within ±10 %",
                    .opacity = 0.36});
  legend.push_back({.mark = LegendEntry::Mark::kSwatch,
                    .colour = kBand,
                    .name = "within ±25 %",
                    .opacity = 0.16});

  std::string data = band_element(area, axis, 0.25, 0.16) + band_element(area, axis, 0.10, 0.24) +
                     line_element(area.left, area.bottom(), area.right(), area.top, kMuted);
  const bool many = drawn > 300;
  for (std::size_t slice = 0; slice < kSlices; ++slice) {
    for (const ColouredGroup& group : groups) {
      const std::size_t begin = group.shown.size() * slice / kSlices;
      const std::size_t end = group.shown.size() * (slice + 1) / kSlices;
      if (begin == end) continue;
      data +=
          fmt::format("<g fill=\"{}\" fill-opacity=\"{}\">\n", group.colour, many ? "0.45" : "0.7");
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t row = group.shown[i];
        data += circle_element(area.left + axis.at(group.measured_us[row]),
                               area.bottom() - axis.at(group.predicted_us[row]), many ? 2 : 3);
      }
      data += "</g>\n";
    }
  }
  std::string note;
  if (drawn < rows) note = fmt::format("{} of {} rows drawn", grouped(drawn), grouped(rows));
  return make_panel(area, axis, axis,
                    {.title = plot.title, .x = "measured time", .y = "predicted time"}, data,
                    legend, note);
}

// Error by size.

namespace {

/// Bins are numbered by their lower edges: 3 decade + (0, 1, 2) for 1, 2, 5 times the decade.
struct Bins {
  bool decades = false;

  int of(double time_us) const {
    int decade = static_cast<int>(std::floor(std::log10(time_us)));
    // The logarithm may round across an edge.
    if (time_us >= std::pow(10, decade + 1)) ++decade;
    if (time_us < std::pow(10, decade)) --decade;
    if (decades) return 3 * decade;
    const double digit = time_us / std::pow(10, decade);
    return 3 * decade + (digit < 2 ? 0 : digit < 5 ? 1 : 2);
  }
  double low(int bin) const {
    const int decade = bin >= 0 ? bin / 3 : -((2 - bin) / 3);
    return std::array{1.0, 2.0, 5.0}[bin - 3 * decade] * std::pow(10, decade);
  }
  double high(int bin) const { return low(decades ? bin + 3 : bin + 1); }
};

struct Bin {
  std::vector<double> times_us, errors;
};

}  // namespace

Result<SvgPanel> error_by_size_panel(const ErrorBySizePlot& plot) {
  if (auto valid = check_times("", plot.measured_us, plot.predicted_us); !valid) {
    return tl::make_unexpected(std::move(valid.error()));
  }
  if (plot.measured_us.empty()) {
    return decline("expected at least one row to draw, found none");
  }
  const auto [shortest, longest] =
      std::minmax_element(plot.measured_us.begin(), plot.measured_us.end());
  const Bins bins{.decades = *longest / *shortest > 1e8};
  std::map<int, Bin> filled;
  for (std::size_t row = 0; row < plot.measured_us.size(); ++row) {
    Bin& bin = filled[bins.of(plot.measured_us[row])];
    bin.times_us.push_back(plot.measured_us[row]);
    bin.errors.push_back(plot.predicted_us[row] / plot.measured_us[row] - 1);
  }

  double low = -0.1, high = 0.1;
  for (auto& [index, bin] : filled) {
    std::vector<double> sorted = bin.errors;
    std::sort(sorted.begin(), sorted.end());
    const bool box = sorted.size() >= kRowsPerBox;
    low = std::min(low, box ? quantile(sorted, 0.1) : sorted.front());
    high = std::max(high, box ? quantile(sorted, 0.9) : sorted.back());
  }
  high = std::min(high, kWorstError);
  const Axis x({.scale = Scale::kLog,
                .unit = Unit::kTime,
                .low = bins.low(filled.begin()->first),
                .high = bins.high(filled.rbegin()->first),
                .length = 430});
  const Axis y({.scale = Scale::kLinear,
                .unit = Unit::kSignedPercent,
                .side = Side::kLeft,
                .low = low,
                .high = high,
                .length = kPlotHeight - kCounts});
  const Area area{
      .left = left_margin(y), .top = kTop + kCounts, .width = x.length(), .height = y.length()};

  const std::string_view colour = kColours[0];
  const auto height_of = [&](double error) {
    return std::max(area.bottom() - y.at(error), area.top);
  };
  std::string data = line_element(area.left, height_of(0), area.right(), height_of(0), kMuted, 1.5);
  bool boxes = false, points = false, cut = false;
  for (const auto& [index, bin] : filled) {
    const double left = area.left + x.at(bins.low(index));
    const double right = area.left + x.at(bins.high(index));
    const double middle = (left + right) / 2, gap = std::min(3.0, (right - left) / 10);
    if (right - left >= 24) {
      data += text_element(middle, area.top - 7, compact(bin.errors.size()),
                           {.anchor = "middle", .colour = kMuted, .size = kSmall});
    }
    if (bin.errors.size() < kRowsPerBox) {
      points = true;
      data += fmt::format("<g fill=\"{}\" fill-opacity=\"0.7\">\n", colour);
      double worst = low;
      for (std::size_t i = 0; i < bin.errors.size(); ++i) {
        data += circle_element(area.left + x.at(bin.times_us[i]), height_of(bin.errors[i]), 3);
        worst = std::max(worst, bin.errors[i]);
      }
      data += "</g>\n";
      if (y.at(worst) > y.length()) {
        cut = true;
        data += triangle_element(middle, area.top + 2, kColours[1]);
      }
      continue;
    }
    boxes = true;
    std::vector<double> sorted = bin.errors;
    std::sort(sorted.begin(), sorted.end());
    std::array<double, 5> errors{}, heights{};
    for (std::size_t i = 0; i < errors.size(); ++i) {
      errors[i] = quantile(sorted, std::array{0.1, 0.25, 0.5, 0.75, 0.9}[i]);
      heights[i] = height_of(errors[i]);
    }
    data += fmt::format(
        "<g><title>{}</title>\n",
        escaped(fmt::format("{} to {}: {} rows, median {}, p10 {}, p25 {}, p75 {}, "
                            "p90 {}",
                            svg::label_text(bins.low(index), Unit::kTime),
                            svg::label_text(bins.high(index), Unit::kTime), grouped(sorted.size()),
                            signed_error_text(errors[2]), signed_error_text(errors[0]),
                            signed_error_text(errors[1]), signed_error_text(errors[3]),
                            signed_error_text(errors[4]))));
    data += rect_element(left + gap, heights[4], right - left - 2 * gap, heights[0] - heights[4],
                         colour, 0.2);
    data += rect_element(left + gap, heights[3], right - left - 2 * gap, heights[1] - heights[3],
                         colour, 0.4);
    data += line_element(left + gap, heights[2], right - gap, heights[2], colour, 2.5);
    if (y.at(errors[4]) > y.length()) {
      cut = true;
      data += triangle_element(middle, area.top + 2, kColours[1]);
    }
    data += "</g>\n";
  }
  data += text_element(area.left - 7, area.top - 7, "rows",
                       {.anchor = "end", .colour = kMuted, .size = kSmall});

  std::vector<LegendEntry> legend;
  if (boxes) {
    legend = {{.mark = LegendEntry::Mark::kLine, .colour = colour, .name = "median"},
              {.mark = LegendEntry::Mark::kSwatch,
               .colour = colour,
               .name = "p25 to p75",
               .opacity = 0.52},
              {.mark = LegendEntry::Mark::kSwatch,
               .colour = colour,
               .name = "p10 to p90",
               .opacity = 0.2}};
  }
  if (points) {
    legend.push_back({.mark = LegendEntry::Mark::kDot, .colour = colour, .name = "single rows"});
  }
  if (cut) {
    legend.push_back(
        {.mark = LegendEntry::Mark::kTriangle, .colour = kColours[1], .name = "beyond the axis"});
  }
  return make_panel(area, x, y, {.title = plot.title, .x = "measured time", .y = "signed error"},
                    data, legend);
}

// Few-shot.

Result<SvgPanel> few_shot_panel(const FewShotPlot& plot) {
  constexpr double kMostError = 1e6;
  std::size_t lines = plot.levels.size();
  double first = 0, last = 0, worst = 0;
  std::vector<FewShotSeries> series;
  const auto valid_error = [&](double error) { return error >= 0 && error <= kMostError; };
  for (const FewShotSeries& given : plot.series) {
    if (given.points.empty()) continue;
    series.push_back(given);
    auto& points = series.back().points;
    for (const FewShotPoint& point : points) {
      if (!positive(point.measured_points) || !valid_error(point.error) ||
          !valid_error(point.low) || !valid_error(point.high) || point.low > point.error ||
          point.high < point.error) {
        return decline(fmt::format(
            "{}: expected a number of points above 0 and 0 <= low <= error <= high <= {}, found {} "
            "points, {} <= {} <= {}",
            given.name, kMostError, point.measured_points, point.low, point.error, point.high));
      }
      first = first == 0 ? point.measured_points : std::min(first, point.measured_points);
      last = std::max(last, point.measured_points);
      worst = std::max(worst, point.high);
    }
    const auto by_size = [](const FewShotPoint& a, const FewShotPoint& b) {
      return a.measured_points < b.measured_points;
    };
    std::sort(points.begin(), points.end(), by_size);
    const auto twice = std::adjacent_find(
        points.begin(), points.end(), [&](const auto& a, const auto& b) { return !by_size(a, b); });
    if (twice != points.end()) {
      return decline(fmt::format("{}: expected each number of points once, found {} twice",
                                 given.name, twice->measured_points));
    }
  }
  lines += series.size();
  for (const ErrorLevel& level : plot.levels) {
    if (!valid_error(level.error)) {
      return decline(fmt::format("{}: expected an error from 0 to {}, found {}", level.name,
                                 kMostError, level.error));
    }
    worst = std::max(worst, level.error);
  }
  if (series.empty()) {
    return decline("expected at least one series with points, found none");
  }
  if (lines > kMostLines) {
    return decline(
        fmt::format("expected at most {} series and levels, found {}", kMostLines, lines));
  }

  const Axis x(
      {.scale = Scale::kLog, .unit = Unit::kCount, .low = first, .high = last, .length = 430});
  const Axis y({.scale = Scale::kLinear,
                .unit = Unit::kPercent,
                .side = Side::kLeft,
                .low = 0,
                .high = worst,
                .length = kPlotHeight});
  const Area area{.left = left_margin(y), .width = x.length()};

  std::string bands, curves;
  std::vector<LegendEntry> legend;
  const auto colour_of = [](std::size_t line) { return kColours[line % kColours.size()]; };
  const auto dashes_of = [](std::size_t line) {
    return std::string_view(line < kColours.size() ? "" : "6 3");
  };
  for (std::size_t line = 0; line < series.size(); ++line) {
    const auto& points = series[line].points;
    const std::string_view colour = colour_of(line);
    std::vector<std::pair<double, double>> curve, band, back;
    for (const FewShotPoint& point : points) {
      const double at = area.left + x.at(point.measured_points);
      curve.emplace_back(at, area.bottom() - y.at(point.error));
      band.emplace_back(at, area.bottom() - y.at(point.high));
      back.emplace_back(at, area.bottom() - y.at(point.low));
    }
    if (points.size() == 1) {
      bands += line_element(band[0].first, band[0].second, back[0].first, back[0].second, colour);
    } else {
      band.insert(band.end(), back.rbegin(), back.rend());
      bands += polygon_element(band, colour, 0.14);
      curves += polyline_element(curve, colour, dashes_of(line));
    }
    curves += fmt::format("<g fill=\"{}\">\n", colour);
    for (const auto& [at, height] : curve) curves += circle_element(at, height, 3);
    curves += "</g>\n";
    legend.push_back({.mark = LegendEntry::Mark::kLine,
                      .colour = colour,
                      .name = series[line].name,
                      .dashes = dashes_of(line)});
  }
  std::string levels;
  for (std::size_t i = 0; i < plot.levels.size(); ++i) {
    // Dotted, as no series is.
    const std::string_view colour = colour_of(series.size() + i);
    const double height = area.bottom() - y.at(plot.levels[i].error);
    levels += line_element(area.left, height, area.right(), height, colour, 2, "2 3");
    legend.push_back({.mark = LegendEntry::Mark::kLine,
                      .colour = colour,
                      .name = plot.levels[i].name,
                      .note = error_text(plot.levels[i].error),
                      .dashes = "2 3"});
  }
  return make_panel(area, x, y,
                    {.title = plot.title, .x = "measured points", .y = plot.error_label},
                    bands + levels + curves, legend);
}

}  // namespace perfmodel
