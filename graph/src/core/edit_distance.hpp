#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace perfmodel {

/// Letters that are added, lost or changed between two texts (Levenshtein 1966): which known names
/// an unknown one may have meant. Time grows with the product of the lengths.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// "a, b, c": the three nearest of names with their distances, equally near ones by name.
std::string nearest_three(std::vector<std::pair<std::size_t, std::string>> names);

}  // namespace perfmodel
