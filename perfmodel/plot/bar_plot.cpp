#include "bar_plot.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "svg_parts.hpp"

namespace perfmodel {

using namespace svg;  // elements, axes and colours

namespace {

constexpr double kWidth = 460, kRow = 22, kThickness = 14, kNoteRoom = 130;
constexpr std::size_t kLongestName = 48;

Result<double> largest(const BarPlot& plot) {
  double most = 0;
  for (const BarPlot::Bar& bar : plot.bars) {
    if (!std::isfinite(bar.value) || bar.value < 0) {
      return decline(fmt::format("{}: expected a value from 0 on, found {}", bar.name, bar.value));
    }
    if (!plot.groups.empty() && bar.group >= plot.groups.size()) {
      return decline(fmt::format("{}: expected one of {} groups, found {}", bar.name,
                                 plot.groups.size(), bar.group));
    }
    most = std::max(most, bar.value);
  }
  if (plot.bars.empty()) return decline("expected bars to plot, found none");
  return most;
}

}  // namespace

Result<SvgPanel> bar_panel(const BarPlot& plot) {
  PERFMODEL_TRY(most, largest(plot));
  const Axis x({.scale = Scale::kLinear,
                .unit = plot.unit,
                .low = 0,
                .high = std::max(*most, 1e-9),
                .length = kWidth});
  double names = 40;
  for (const BarPlot::Bar& bar : plot.bars) {
    names = std::max(names, text_width(shortened(bar.name, kLongestName), kNormal));
  }
  const Area area{.left = names + 14,
                  .width = x.length(),
                  .height = kRow * static_cast<double>(plot.bars.size()) + 8};

  std::string out = text_element(0, kTop - 16, shortened_to(plot.title, names + kWidth, kHeading),
                                 {.size = kHeading, .bold = true});
  for (const auto& tick : x.ticks()) {
    const double at = area.left + tick.at;
    out += line_element(at, area.top, at, area.bottom(), tick.label.empty() ? kFineGrid : kGrid);
    out += text_element(at, area.bottom() + 16, tick.label, {.anchor = "middle", .colour = kMuted});
  }
  out += text_element(area.left + area.width / 2, area.bottom() + 36, plot.x_label,
                      {.anchor = "middle"});
  for (std::size_t i = 0; i < plot.bars.size(); ++i) {
    const BarPlot::Bar& bar = plot.bars[i];
    const double top = area.top + 4 + kRow * static_cast<double>(i);
    const double text = top + kRow / 2 + 4;
    out += text_element(area.left - 7, text, shortened(bar.name, kLongestName), {.anchor = "end"});
    out += rect_element(area.left, top + (kRow - kThickness) / 2, x.at(bar.value), kThickness,
                        kColours[bar.group % kColours.size()], 0.85);
    out += text_element(area.left + x.at(bar.value) + 6, text, bar.note,
                        {.colour = kMuted, .size = kSmall});
  }
  out += line_element(area.left, area.top, area.left, area.bottom(), kFrame);

  SvgPanel panel{.width = area.right() + kNoteRoom, .height = area.bottom() + kBottom};
  if (plot.groups.size() > 1) {
    double at = area.left;
    for (std::size_t i = 0; i < plot.groups.size(); ++i) {
      out += rect_element(at, panel.height - 2, 10, 10, kColours[i % kColours.size()], 0.85);
      out += text_element(at + 15, panel.height + 7, plot.groups[i]);
      at += 33 + text_width(plot.groups[i], kNormal);
    }
    panel.width = std::max(panel.width, at);
    panel.height += 16;
  }
  panel.content = std::move(out);
  return panel;
}

}  // namespace perfmodel
