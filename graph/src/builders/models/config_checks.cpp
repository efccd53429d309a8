#include "config_checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/edit_distance.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kShownNames = 8;

}  // namespace

Unexpected bad_config(std::string message) {
  return fail(ErrorCode::kImpossible, std::move(message));
}

Unexpected unknown_preset(std::string_view what, std::string_view found,
                          const std::vector<std::string_view>& known) {
  std::vector<std::string_view> shown = known;
  if (shown.size() > kShownNames) {
    std::stable_sort(shown.begin(), shown.end(), [&](std::string_view a, std::string_view b) {
      return edit_distance(a, found) < edit_distance(b, found);
    });
    shown.resize(kShownNames);
    shown.push_back("...");
  }
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected {} ({}), found \"{}\"", what, fmt::join(shown, ", "), found));
}

Result<void> expect_at_least(std::string_view what, std::int64_t least, std::int64_t found) {
  if (found >= least) return {};
  return bad_config(fmt::format("{}: expected at least {}, found {}", what, least, found));
}

Result<void> expect_layers(std::string_view what, std::int64_t found) {
  if (found <= kMostLayers) return expect_at_least(what, 1, found);
  return bad_config(fmt::format("{}: expected at most {}, found {}", what, kMostLayers, found));
}

Result<void> expect_probability(std::string_view what, double found) {
  if (found >= 0 && found < 1) return {};
  return bad_config(fmt::format("{}: expected at least 0 and less than 1, found {}", what, found));
}

Result<void> expect_countable(std::string_view what, const std::vector<std::int64_t>& shape) {
  double elements = 1;
  for (std::int64_t size : shape) elements *= static_cast<double>(size);
  if (elements < static_cast<double>(kMostElements)) return {};
  return bad_config(
      fmt::format("{}: expected less than 2^60 elements, found {}", what, fmt::join(shape, " x ")));
}

}  // namespace perfmodel
