#pragma once

#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "svg_axis.hpp"
#include "svg_panel.hpp"

namespace perfmodel {

/// Horizontal bars, one per row, from top to bottom, each with its name at the left and a note
/// after its end. Bars of one group share a colour; beyond ten groups colours repeat.
struct BarPlot {
  std::string title, x_label;
  svg::Unit unit = svg::Unit::kCount;

  struct Bar {
    std::string name, note = {};
    double value = 0;       ///< not below 0
    std::size_t group = 0;  ///< into `groups`
  };
  std::vector<Bar> bars;
  std::vector<std::string> groups;  ///< for the legend; one group needs none
};

/// Refused: no bars, values below 0 or not finite, groups that are not named.
Result<SvgPanel> bar_panel(const BarPlot& plot);

}  // namespace perfmodel
