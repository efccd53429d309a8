#include "what_if_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/decimal_number.hpp"
#include "base/number_text.hpp"
#include "plot/bar_plot.hpp"
#include "plot/line_plot.hpp"
#include "plot/svg_document.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kMostLines = 20;

std::optional<double> number(const std::string& text) {
  double value = 0;
  return read_decimal(text, value) && value > 0 ? std::optional(value) : std::nullopt;
}

// Samples per second, or steps where a batch is not known.
double rate(const WhatIfAnswer& answer) {
  return answer.samples_per_s().value_or(1e6 / answer.e2e_us);
}

bool all_have_samples(const WhatIfReport& report) {
  return std::ranges::all_of(report.answers, [](const WhatIfAnswer& answer) {
    return answer.error || answer.samples_per_s();
  });
}

std::string rate_label(const WhatIfReport& report) {
  return all_have_samples(report) ? "samples per second" : "steps per second";
}

// The first axis with at least two different numbers.
std::optional<std::size_t> numeric_axis(const WhatIfReport& report) {
  for (std::size_t i = 0; i < report.axes.size(); ++i) {
    std::vector<double> numbers;
    for (const sweep::RewriteAxis::Value& value : report.axes[i].values) {
      const auto found = number(value.text);
      if (found && std::ranges::find(numbers, *found) == numbers.end()) numbers.push_back(*found);
    }
    if (numbers.size() >= 2) return i;
  }
  return {};
}

// "optimizer fused, h100-sxm-80gb": what is fixed along a line.
std::string line_name(const WhatIfReport& report, const WhatIfAnswer& answer, std::size_t axis) {
  std::string name;
  for (std::size_t i = 0; i < report.axes.size(); ++i) {
    const std::string& value = report.values[answer.variant][i];
    if (i == axis || value.empty()) continue;
    name += report.axes[i].name + (value == "on" ? "" : " " + value) + ", ";
  }
  return name + report.gpu(answer).name;
}

LinePlot lines_over(const WhatIfReport& report, std::size_t axis) {
  LinePlot plot{.title = "Throughput over " + report.axes[axis].name,
                .x_label = report.axes[axis].name,
                .y_label = rate_label(report)};
  for (const WhatIfAnswer& answer : report.answers) {
    const auto x = number(report.values[answer.variant][axis]);
    if (!x || answer.error) continue;
    const std::string name = line_name(report, answer, axis);
    auto line = std::ranges::find(plot.lines, name, &LinePlot::Line::name);
    if (line == plot.lines.end()) line = plot.lines.insert(line, {.name = name});
    line->points.emplace_back(*x, rate(answer));
  }
  return plot;
}

BarPlot bars_of(const WhatIfReport& report) {
  BarPlot plot{.title = "Throughput of each variant", .x_label = rate_label(report)};
  for (const WhatIfTarget& target : report.targets) plot.groups.push_back(target.gpu.name);
  for (const WhatIfAnswer& answer : report.answers) {
    if (answer.error) continue;
    plot.bars.push_back({.name = report.variants[answer.variant].name,
                         .note = fmt::format("{:.2f}x, {} {}", speed_up(report, answer),
                                             answer.bound, percent(answer.bound_share, 0)),
                         .value = rate(answer),
                         .group = answer.target});
  }
  return plot;
}

}  // namespace

Result<std::string> what_if_svg(const WhatIfReport& report) {
  Result<SvgPanel> panel = decline("");
  const auto axis = numeric_axis(report);
  LinePlot lines;
  if (axis) lines = lines_over(report, *axis);
  if (axis && lines.lines.size() <= kMostLines) {
    panel = line_panel(lines);
  } else {
    panel = bar_panel(bars_of(report));
  }
  if (!panel) return Unexpected{panel.error()};
  return svg_document("What if: " + report.graph_file,
                      fmt::format("predicted by perfmodel, kernel models: {}", report.models),
                      {*panel}, 1);
}

}  // namespace perfmodel
