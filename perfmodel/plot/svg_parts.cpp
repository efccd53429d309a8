#include "svg_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace perfmodel::svg {
namespace {

/// Length of the UTF-8 sequence at the start of `text`, 0 if it is none or no character of XML 1.0.
std::size_t sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return first >= 0x20 || first == '\t' || first == '\n' ? 1 : 0;
  const std::size_t length = first >= 0xF5   ? 0
                             : first >= 0xF0 ? 4
                             : first >= 0xE0 ? 3
                             : first >= 0xC2 ? 2
                                             : 0;
  if (length == 0 || length > text.size()) return 0;
  std::uint32_t code = first & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    code = code << 6 | (byte(i) & 0x3FU);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (overlong || surrogate || code > 0x10FFFF || code == 0xFFFE || code == 0xFFFF) return 0;
  return length;
}

/// Valid UTF-8 of characters that XML allows, whatever the bytes are.
std::string cleaned(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = sequence(text);
    if (length == 0) {
      result += "\uFFFD";
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return result;
}

std::string point_list(const std::vector<std::pair<double, double>>& points) {
  std::string list;
  for (const auto& [x, y] : points) {
    if (!list.empty()) list += ' ';
    list += px(x) + ',' + px(y);
  }
  return list;
}

}  // namespace

std::string px(double value) {
  const double result = std::round(value * 100) / 100;
  return fmt::format("{:.8g}", result == 0 ? 0.0 : result);
}

std::string escaped(std::string_view text) {
  std::string result;
  for (char c : cleaned(text)) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string shortened(std::string_view name, std::size_t most) {
  std::string text = cleaned(name);
  if (characters(text) <= most) return text;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  while (!text.empty() && characters(text) >= std::max<std::size_t>(most, 1)) {
    while (text.size() > 1 && continues(text.back())) text.pop_back();
    text.pop_back();
  }
  return text + "…";
}

std::string shortened_to(std::string_view text, double width, double font_size) {
  return shortened(text, static_cast<std::size_t>(std::max(1.0, width / (0.6 * font_size))));
}

std::string text_element(double x, double y, std::string_view text, TextStyle style) {
  if (text.empty()) return {};
  std::string attributes = fmt::format(R"(x="{}" y="{}" font-size="{}" fill="{}")", px(x), px(y),
                                       px(style.size), style.colour);
  if (style.anchor != "start") attributes += fmt::format(R"( text-anchor="{}")", style.anchor);
  if (style.bold) attributes += R"( font-weight="600")";
  if (style.upright) {
    attributes += fmt::format(" transform=\"rotate(-90 {} {})\"", px(x), px(y));
  }
  return fmt::format("<text {}>{}</text>\n", attributes, escaped(text));
}

namespace {

// An attribute that differs from what a drawing has without it.
std::string unless_one(std::string_view name, double value) {
  return value == 1 ? "" : fmt::format(R"( {}="{}")", name, px(value));
}

}  // namespace

std::string line_element(double x1, double y1, double x2, double y2, std::string_view colour,
                         double width, std::string_view dashes) {
  return fmt::format(R"(<line x1="{}" y1="{}" x2="{}" y2="{}" stroke="{}"{}{}/>)", px(x1), px(y1),
                     px(x2), px(y2), colour, unless_one("stroke-width", width),
                     dashes.empty() ? "" : fmt::format(R"( stroke-dasharray="{}")", dashes)) +
         "\n";
}

std::string rect_element(double x, double y, double width, double height, std::string_view colour,
                         double opacity) {
  return fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" fill="{}"{}/>)", px(x), px(y),
                     px(width), px(height), colour, unless_one("fill-opacity", opacity)) +
         "\n";
}

std::string circle_element(double x, double y, double radius) {
  return fmt::format(R"(<circle cx="{}" cy="{}" r="{}"/>)", px(x), px(y), px(radius)) + "\n";
}

std::string polygon_element(const std::vector<std::pair<double, double>>& points,
                            std::string_view colour, double opacity) {
  return fmt::format(R"(<polygon points="{}" fill="{}"{}/>)", point_list(points), colour,
                     unless_one("fill-opacity", opacity)) +
         "\n";
}

std::string polyline_element(const std::vector<std::pair<double, double>>& points,
                             std::string_view colour, std::string_view dashes) {
  return fmt::format(
             R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="2" stroke-linejoin="round"{}/>)",
             point_list(points), colour,
             dashes.empty() ? "" : fmt::format(R"( stroke-dasharray="{}")", dashes)) +
         "\n";
}

std::string triangle_element(double x, double top, std::string_view colour) {
  return polygon_element({{x - 4, top + 7}, {x + 4, top + 7}, {x, top}}, colour, 1);
}

double left_margin(const Axis& y) {
  double widest = 0;
  for (const auto& tick : y.ticks()) {
    widest = std::max(widest, text_width(tick.label, kNormal));
  }
  return std::max(74.0, widest + 34);  // panels of a column line up
}

namespace {

std::string axes(const Area& area, const Axis& x, const Axis& y, const Labels& labels) {
  std::string out, text;
  for (const bool labelled : {false, true}) {  // the fine lines first
    std::string lines;
    for (const auto& tick : x.ticks()) {
      if (tick.label.empty() == labelled) continue;
      const double at = area.left + tick.at;
      lines += fmt::format("M{} {}V{}", px(at), px(area.top), px(area.bottom()));
      text +=
          text_element(at, area.bottom() + 16, tick.label, {.anchor = "middle", .colour = kMuted});
    }
    for (const auto& tick : y.ticks()) {
      if (tick.label.empty() == labelled) continue;
      const double at = area.bottom() - tick.at;
      lines += fmt::format("M{} {}H{}", px(area.left), px(at), px(area.right()));
      text += text_element(area.left - 7, at + 4, tick.label, {.anchor = "end", .colour = kMuted});
    }
    if (lines.empty()) continue;
    out += fmt::format(R"(<path d="{}" stroke="{}"/>)", lines, labelled ? kGrid : kFineGrid) + "\n";
  }
  out += fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" fill="none" stroke="{}"/>)",
                     px(area.left), px(area.top), px(area.width), px(area.height), kFrame) +
         "\n" + text;
  out +=
      text_element(area.left + area.width / 2, area.bottom() + 36, labels.x, {.anchor = "middle"});
  out +=
      text_element(14, area.top + area.height / 2, labels.y, {.anchor = "middle", .upright = true});
  return out;
}

struct Legend {
  double width = 0, height = 0;
  std::string content;
};

Legend make_legend(double left, double top, const std::vector<LegendEntry>& entries) {
  Legend legend;
  double y = top;
  for (const LegendEntry& entry : entries) {
    const std::string name = shortened(entry.name, kLegendName);
    const double middle = y + 7;
    switch (entry.mark) {
      case LegendEntry::Mark::kDot:
        // An ellipse, so that circles are points of the plot.
        legend.content += fmt::format(R"(<ellipse cx="{}" cy="{}" rx="4" ry="4" fill="{}"/>)",
                                      px(left + kMark / 2), px(middle), entry.colour) +
                          "\n";
        break;
      case LegendEntry::Mark::kLine:
        legend.content +=
            line_element(left, middle, left + kMark, middle, entry.colour, 2, entry.dashes);
        break;
      case LegendEntry::Mark::kTriangle:
        legend.content += triangle_element(left + kMark / 2, middle - 4, entry.colour);
        break;
      case LegendEntry::Mark::kSwatch:
        legend.content += rect_element(left, middle - 5, kMark, 10, entry.colour, entry.opacity);
        break;
    }
    const double text = left + kMark + kMarkGap;
    legend.content += text_element(text, y + 11, name);
    double width = text_width(name, kNormal);
    y += 18;
    if (!entry.note.empty()) {
      legend.content += text_element(text, y + 6, entry.note, {.colour = kMuted, .size = kSmall});
      width = std::max(width, text_width(entry.note, kSmall));
      y += 14;
    }
    legend.width = std::max(legend.width, kMark + kMarkGap + width);
  }
  legend.height = y - top;
  return legend;
}

}  // namespace

SvgPanel make_panel(const Area& area, const Axis& x, const Axis& y, const Labels& labels,
                    const std::string& data, const std::vector<LegendEntry>& entries,
                    const std::string& note) {
  SvgPanel panel;
  const double left = area.right() + kLegendGap;
  const Legend legend = make_legend(left, area.top, entries);
  panel.width = left + std::max(legend.width, text_width(note, kSmall));
  const double note_at = std::max(area.bottom() - 2, area.top + legend.height + 14);
  panel.height = std::max(area.bottom() + kBottom, note_at + 6);
  panel.content = text_element(area.left, kTop - 16,
                               shortened_to(labels.title, panel.width - area.left, kHeading),
                               {.size = kHeading, .bold = true}) +
                  axes(area, x, y, labels) + data + legend.content +
                  text_element(left, note_at, note, {.colour = kMuted, .size = kSmall});
  return panel;
}

}  // namespace perfmodel::svg
