#pragma once

#include <string>
#include <utility>
#include <vector>

#include "perfmodel/result.hpp"
#include "svg_axis.hpp"
#include "svg_panel.hpp"

namespace perfmodel {

/// Lines with their points over a logarithmic x axis; y starts at zero.
struct LinePlot {
  std::string title, x_label, y_label;
  svg::Unit y_unit = svg::Unit::kCount;

  struct Line {
    std::string name, note = {};                    ///< the note is a second line of the legend
    std::vector<std::pair<double, double>> points;  ///< x above 0, y not below 0
  };
  std::vector<Line> lines;  ///< at most 20; the second ten are dashed
};

/// Refused: no points, more than 20 lines, values without a place on the axes.
Result<SvgPanel> line_panel(const LinePlot& plot);

}  // namespace perfmodel
