#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "svg_axis.hpp"
#include "svg_panel.hpp"

/// The parts of plots: elements, axes, legends. Lengths are pixels, y grows downwards.
namespace perfmodel::svg {

// Told apart with the common kinds of colour blindness (Okabe-Ito, then Tol).
inline constexpr std::array<std::string_view, 10> kColours = {
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00",
    "#56b4e9", "#882255", "#999933", "#332288", "#7f5539"};
inline constexpr std::size_t kMostLines = 2 * kColours.size();  // solid, then dashed
inline constexpr std::string_view kOtherColour = "#8a94a0";
inline constexpr std::string_view kInk = "#1f2933", kMuted = "#5f6b7a", kFrame = "#9aa5b1";
inline constexpr std::string_view kGrid = "#dde2e8", kFineGrid = "#eff2f5", kBand = "#7b8794";

inline constexpr double kSmall = 10, kNormal = kTickFontSize, kHeading = 13;
inline constexpr double kPlotHeight = 320;
inline constexpr double kTop = 30;     // title
inline constexpr double kBottom = 46;  // tick labels, axis label
inline constexpr double kLegendGap = 18, kMark = 16, kMarkGap = 7;
inline constexpr std::size_t kLegendName = 28;

struct Area {
  double left = 0, top = kTop, width = 0, height = kPlotHeight;
  double right() const { return left + width; }
  double bottom() const { return top + height; }
};

/// Pixels to two decimals.
std::string px(double value);

/// Text as content of an element, whatever bytes it holds.
std::string escaped(std::string_view text);

/// At most `most` characters, or as many as fit into `width`; text that is cut ends in "…".
std::string shortened(std::string_view name, std::size_t most);
std::string shortened_to(std::string_view text, double width, double font_size);

struct TextStyle {
  std::string_view anchor = "start", colour = kInk;
  double size = kNormal;
  bool bold = false, upright = false;
};
std::string text_element(double x, double y, std::string_view text, TextStyle style = {});
std::string line_element(double x1, double y1, double x2, double y2, std::string_view colour,
                         double width = 1, std::string_view dashes = {});
std::string rect_element(double x, double y, double width, double height, std::string_view colour,
                         double opacity);
std::string circle_element(double x, double y, double radius);
std::string polygon_element(const std::vector<std::pair<double, double>>& points,
                            std::string_view colour, double opacity);
std::string polyline_element(const std::vector<std::pair<double, double>>& points,
                             std::string_view colour, std::string_view dashes = {});
/// Points up, at (x, top).
std::string triangle_element(double x, double top, std::string_view colour);

struct Labels {
  std::string_view title, x, y;
};

/// Room for the labels of the y axis.
double left_margin(const Axis& y);

struct LegendEntry {
  enum class Mark { kDot, kLine, kSwatch, kTriangle } mark = Mark::kDot;
  std::string_view colour = kInk;
  std::string name, note = {};  ///< the note is a second, smaller line
  double opacity = 1;
  std::string_view dashes = {};
};

/// `data` on its axes, with the legend at the right; `note` is written below the legend.
SvgPanel make_panel(const Area& area, const Axis& x, const Axis& y, const Labels& labels,
                    const std::string& data, const std::vector<LegendEntry>& entries,
                    const std::string& note = {});

}  // namespace perfmodel::svg
