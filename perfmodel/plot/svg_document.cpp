#include "svg_document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "svg_parts.hpp"

namespace perfmodel {

using namespace svg;  // elements of all kinds

Result<std::string> svg_document(std::string_view title, std::string_view subtitle,
                                 const std::vector<SvgPanel>& panels, std::size_t columns) {
  constexpr double kMargin = 24, kColumnGap = 36, kRowGap = 24;
  if (panels.empty() || columns == 0) {
    return decline(fmt::format("expected panels and columns, found {} panels in {} columns",
                               panels.size(), columns));
  }
  columns = std::min(columns, panels.size());
  std::vector<double> widths(columns), heights((panels.size() + columns - 1) / columns);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    widths[i % columns] = std::max(widths[i % columns], panels[i].width);
    heights[i / columns] = std::max(heights[i / columns], panels[i].height);
  }
  const double top = kMargin + (title.empty() ? 0 : 30) + (subtitle.empty() ? 0 : 20);
  const double width = std::accumulate(widths.begin(), widths.end(), 2 * kMargin) +
                       kColumnGap * static_cast<double>(columns - 1);
  const double height = std::accumulate(heights.begin(), heights.end(), top + kMargin) +
                        kRowGap * static_cast<double>(heights.size() - 1);

  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" role=\"img\" font-family=\"system-ui, -apple-system, 'Segoe UI', "
      "Roboto, 'Helvetica Neue', Arial, sans-serif\">\n",
      px(std::ceil(width)), px(std::ceil(height)));
  if (!title.empty()) out += fmt::format("<title>{}</title>\n", escaped(title));
  out += "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  out += text_element(kMargin, kMargin + 15, shortened_to(title, width - 2 * kMargin, 18),
                      {.size = 18, .bold = true});
  out += text_element(kMargin, top - 12, shortened_to(subtitle, width - 2 * kMargin, 12),
                      {.colour = kMuted, .size = 12});
  double y = top;
  for (std::size_t row = 0; row < heights.size(); ++row) {
    double x = kMargin;
    for (std::size_t column = 0; column < columns; ++column) {
      const std::size_t i = row * columns + column;
      if (i < panels.size()) {
        out += fmt::format("<g transform=\"translate({} {})\">\n{}</g>\n", px(x), px(y),
                           panels[i].content);
      }
      x += widths[column] + kColumnGap;
    }
    y += heights[row] + kRowGap;
  }
  return out + "</svg>\n";
}

}  // namespace perfmodel
