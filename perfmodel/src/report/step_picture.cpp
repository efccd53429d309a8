#include "report/step_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "plot/svg_document.hpp"
#include "plot/svg_parts.hpp"

namespace perfmodel::report_page {
namespace {

using findings::KernelFact;
using findings::OpFact;

constexpr double kLabels = 70, kWidth = 780, kRow = 24, kRowGap = 8, kLeastWidth = 0.5;
constexpr std::size_t kFamilies = 6;
constexpr std::string_view kHostColour = "#b7c9e2";

// The families that take most time have colours; the others share one.
std::map<KernelFamily, std::string_view> colours_of(const findings::StepFacts& facts) {
  std::map<KernelFamily, double> sums;
  for (const KernelFact& kernel : facts.kernels) sums[kernel.family] += kernel.time_us;
  std::vector<std::pair<double, KernelFamily>> order;
  for (const auto& [family, us] : sums) order.emplace_back(-us, family);
  std::ranges::sort(order);
  std::map<KernelFamily, std::string_view> made;
  for (std::size_t i = 0; i < std::min(kFamilies, order.size()); ++i) {
    made[order[i].second] = svg::kColours[i];
  }
  return made;
}

struct Row {
  std::string label;
  std::string rects;
};

}  // namespace

Result<std::string> step_picture(const std::string& title, const Run& run) {
  const findings::StepFacts& facts = *run.facts;
  const auto colours = colours_of(facts);
  double end = facts.span_us;
  for (const KernelFact& kernel : facts.kernels) {
    end = std::max(end, kernel.start_us + kernel.time_us);
  }
  const svg::Axis axis(
      {.unit = svg::Unit::kTime, .low = 0, .high = std::max(end, 1.0), .length = kWidth});
  const auto rect = [&](double start_us, double us, double y, std::string_view colour) {
    const double from = axis.at(start_us), wide = axis.at(start_us + us) - from;
    return svg::rect_element(kLabels + from, y, std::max(kLeastWidth, wide), kRow, colour, 1);
  };
  std::map<std::pair<bool, std::int64_t>, Row> rows;
  std::map<std::pair<bool, std::int64_t>, double> at;
  for (const OpFact& op : facts.ops) {
    if (!op.is_label) rows[{false, op.thread}].label = fmt::format("host {}", op.thread);
  }
  for (const KernelFact& kernel : facts.kernels) {
    rows[{true, kernel.stream}].label = fmt::format("stream {}", kernel.stream);
  }
  double y = 0;
  for (const auto& [key, row] : rows) {
    at[key] = y;
    y += kRow + kRowGap;
  }
  std::string content;
  for (const svg::Tick& tick : axis.ticks()) {
    const double x = kLabels + tick.at;
    content += svg::line_element(x, 0, x, y, svg::kGrid);
    content +=
        svg::text_element(x, y + 14, tick.label, {.anchor = "middle", .colour = svg::kMuted});
  }
  for (const auto& [key, row] : rows) {
    content += svg::text_element(kLabels - 8, at[key] + 16, row.label,
                                 {.anchor = "end", .colour = svg::kMuted});
  }
  for (std::size_t i = 0; i < facts.ops.size(); ++i) {
    const OpFact& op = facts.ops[i];
    if (op.is_label || facts.top_op(static_cast<std::int32_t>(i)) != static_cast<std::int32_t>(i)) {
      continue;
    }
    content += rect(op.start_us, op.end_us - op.start_us, at[{false, op.thread}], kHostColour);
  }
  for (const KernelFact& kernel : facts.kernels) {
    const auto colour = colours.find(kernel.family);
    content += rect(kernel.start_us, kernel.time_us, at[{true, kernel.stream}],
                    colour == colours.end() ? svg::kOtherColour : colour->second);
  }
  double x = kLabels;
  const double legend = y + 32;
  const auto entry = [&](std::string_view name, std::string_view colour) {
    content += svg::rect_element(x, legend, 11, 11, colour, 1);
    content += svg::text_element(x + 16, legend + 10, name, {.colour = svg::kMuted});
    x += 34 + svg::text_width(name, svg::kNormal);
  };
  entry("ops of the host", kHostColour);
  std::map<std::string_view, std::string_view> by_colour;
  for (const auto& [family, colour] : colours) by_colour[colour] = to_string(family);
  for (const std::string_view colour : svg::kColours) {
    if (const auto found = by_colour.find(colour); found != by_colour.end()) {
      entry(found->second, colour);
    }
  }
  if (colours.size() == kFamilies) entry("other", svg::kOtherColour);
  return svg_document(title, limit_sentence(run),
                      {{.width = kLabels + kWidth + 20, .height = legend + 14, .content = content}},
                      1);
}

}  // namespace perfmodel::report_page
