#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/result.hpp"
#include "svg_panel.hpp"

namespace perfmodel {

/// Panels from left to right in rows of `columns`, under one title; `subtitle` may be empty.
/// Columns are as wide, rows as high as their largest panel. SVG 1.1: no scripts, no style sheets,
/// no fonts of its own; same input, same bytes. Refused: no panels, no columns.
Result<std::string> svg_document(std::string_view title, std::string_view subtitle,
                                 const std::vector<SvgPanel>& panels, std::size_t columns);

}  // namespace perfmodel
