#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/decimal_number.hpp"
#include "commands.hpp"

namespace kernels_bench {

using perfmodel::ErrorCode;
using perfmodel::fail;
using perfmodel::Result;

Result<std::vector<const Family*>> families_of(const std::vector<std::string>& names) {
  std::vector<const Family*> chosen;
  for (const std::string& name : names) {
    if (!find_family(name)) {
      std::string known;
      for (const Family* family : families()) known += fmt::format(" {}", family->name);
      return fail(ErrorCode::kUnknownName,
                  fmt::format("--families: expected one of{}, found \"{}\"", known, name));
    }
  }
  for (const Family* family : families()) {  // in the order of a campaign, each once
    const bool is_named = std::find(names.begin(), names.end(), family->name) != names.end();
    if (names.empty() ? family->is_default : is_named) chosen.push_back(family);
  }
  return chosen;
}

namespace {

double number_of(const std::string& text) {
  double value = 0;
  return perfmodel::read_decimal(text, value) ? value : std::nan("");
}

}  // namespace

Check whole_number(long least) {
  constexpr double kMost = 1e9;
  return {[least](std::string& text) -> std::string {
            const double value = number_of(text);
            const bool is_fine =
                value >= static_cast<double>(least) && value <= kMost && value == std::floor(value);
            return is_fine ? ""
                           : fmt::format("expected a whole number from {} to 1e9, found {}", least,
                                         text);
          },
          "NUMBER"};
}

Check positive_number() {
  return {[](std::string& text) -> std::string {
            const double value = number_of(text);
            return value > 0 && std::isfinite(value)
                       ? ""
                       : fmt::format("expected a number above 0, found {}", text);
          },
          "NUMBER"};
}

Result<double> seconds_of(const std::string& text) {
  const std::size_t digits = std::min(text.find_first_of("smh"), text.size());
  const double value = number_of(text.substr(0, digits));
  const std::string unit = text.substr(digits);
  const double scale = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  constexpr double kMost = 1e7;  // four months
  if (!(value > 0) || !(value * scale <= kMost) || scale == 0) {
    return fail(ErrorCode::kFormat,
                fmt::format("--budget: expected a time like 90s, 8m or 1h, found \"{}\"", text));
  }
  return value * scale;
}

}  // namespace kernels_bench
