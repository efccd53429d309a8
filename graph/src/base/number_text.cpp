#include "number_text.hpp"

#include <fmt/format.h>

namespace perfmodel {

std::string grouped(std::size_t number) {
  std::string digits = std::to_string(number);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

std::string counted(std::size_t count, std::string_view noun) {
  return grouped(count) + " " + std::string(noun) + (count == 1 ? "" : "s");
}

std::string percent(double share, int digits) {
  return fmt::format("{:.{}f} %", 100 * share, digits);
}

std::string signed_percent(double share, int digits) {
  return fmt::format("{:+.{}f} %", 100 * share, digits);
}

std::string percent_of(double part, double whole, int digits) {
  return whole > 0 ? fmt::format("{:.{}f} %", 100 * part / whole, digits) : "-";
}

std::string milliseconds(double us) { return fmt::format("{:.3f}", us / 1e3); }

}  // namespace perfmodel
