#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/size_limits.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

// Checks of a config by builders, and the messages if they fail.

/// A tensor has fewer elements.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 60;

/// The names of a table of presets.
template <class Sizes>
std::vector<std::string_view> preset_names(const Sizes& sizes) {
  std::vector<std::string_view> names;
  for (const auto& size : sizes) names.push_back(size.name);
  return names;
}
Unexpected bad_config(std::string message);
/// "expected an LSTM preset (a, b), found "c"": all names if they are few, else the nearest ones.
Unexpected unknown_preset(std::string_view what, std::string_view found,
                          const std::vector<std::string_view>& known);
/// "hidden: expected at least 1, found 0".
Result<void> expect_at_least(std::string_view what, std::int64_t least, std::int64_t found);
/// From 1 to kMostLayers.
Result<void> expect_layers(std::string_view what, std::int64_t found);
Result<void> expect_probability(std::string_view what, double found);
/// Refuses a tensor of 2^60 elements or more.
Result<void> expect_countable(std::string_view what, const std::vector<std::int64_t>& shape);
}  // namespace perfmodel
