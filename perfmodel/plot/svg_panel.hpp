#pragma once

#include <string>

namespace perfmodel {

/// One drawn plot with its title, axes and legend.
struct SvgPanel {
  double width = 0, height = 0;
  std::string content;  ///< elements that lie within (0, 0) and (width, height)
};

}  // namespace perfmodel
