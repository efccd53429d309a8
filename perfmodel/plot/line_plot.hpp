#pragma once

#include <optional>
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
  double width = 460, height = 320;   ///< length of the axes, in pixels
  bool legend = true;                 ///< at the right
  std::optional<double> y_most = {};  ///< end of the y axis; else it ends a little after the points
  std::vector<double> x_marks = {};   ///< labels of the x axis; empty: 1, 2, 5, 10, ...

  struct Line {
    std::string name, note = {};                    ///< the note is a second line of the legend
    std::vector<std::pair<double, double>> points;  ///< x above 0, y not below 0
    /// Low and high of each point, drawn as a band; then points come in the order of x. Empty:
    /// none.
    std::vector<std::pair<double, double>> ranges = {};
  };
  std::vector<Line> lines;  ///< at most 20; the second ten are dashed
};

/// Refused: no points, more than 20 lines, values without a place on the axes.
Result<SvgPanel> line_panel(const LinePlot& plot);

}  // namespace perfmodel
