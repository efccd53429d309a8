#include "duration_text.hpp"

#include "decimal_number.hpp"

namespace perfmodel {

std::optional<std::pair<double, std::string_view>> number_and_unit(std::string_view text) {
  const std::size_t unit = text.find_first_not_of("0123456789.");
  double number = 0;
  if (unit == text.npos || !read_decimal(text.substr(0, unit), number) || !(number > 0)) return {};
  std::string_view name = text.substr(unit);
  if (name.starts_with(' ')) name.remove_prefix(1);
  return std::pair(number, name);
}

std::optional<double> read_duration_us(std::string_view text) {
  const auto read = number_and_unit(text);
  if (!read) return std::nullopt;
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"us", 1}, {"µs", 1}, {"ms", 1e3}, {"s", 1e6}};
  for (const auto& [known, us] : kUnits) {
    if (read->second == known) return read->first * us;
  }
  return std::nullopt;
}

}  // namespace perfmodel
