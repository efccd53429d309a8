#pragma once

#include <optional>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "svg_axis.hpp"
#include "svg_panel.hpp"

namespace perfmodel {

/// Amounts on top of one another that change in steps, from the first layer upwards.
struct AreaPlot {
  std::string title, x_label, y_label;
  svg::Unit x_unit = svg::Unit::kCount;
  std::vector<double> x;  ///< ascending; amounts hold from each x to the next

  struct Layer {
    std::string name;
    std::vector<double> amounts;  ///< at each x, not below 0
  };
  std::vector<Layer> layers;  ///< at most 10

  /// A level to compare with, dashed; left out where it is far above all amounts.
  struct Level {
    std::string name;
    double amount = 0;
  };
  std::optional<Level> level;
};

/// Between the pixels of the plot the point with the largest sum is drawn, of equal ones that with
/// most in the first layer, so that no peak is lost.
/// Refused: no points, layers of other lengths, amounts below 0 or infinite.
Result<SvgPanel> area_panel(const AreaPlot& plot);

}  // namespace perfmodel
