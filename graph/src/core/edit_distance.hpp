#pragma once

#include <cstddef>
#include <string_view>

namespace perfmodel {

/// Letters that are added, lost or changed between two texts (Levenshtein 1966): which known names
/// an unknown one may have meant. Time grows with the product of the lengths.
std::size_t edit_distance(std::string_view a, std::string_view b);

}  // namespace perfmodel
