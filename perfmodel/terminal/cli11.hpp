#pragma once

// CLI11 reads whole numbers as C does: "064" is 52 and "0x40" is 64. These specialisations make
// numbers of every option decimal. They must come before the first use, so no other file includes
// a header of CLI11.
#include <CLI/TypeTools.hpp>
#include <string>

#include "base/decimal_number.hpp"

namespace CLI::detail {

template <>
inline bool integral_conversion<int>(const std::string& text, int& number) noexcept {
  return perfmodel::read_decimal(text, number);
}
template <>
inline bool integral_conversion<long>(const std::string& text, long& number) noexcept {
  return perfmodel::read_decimal(text, number);
}
template <>
inline bool integral_conversion<unsigned>(const std::string& text, unsigned& number) noexcept {
  return perfmodel::read_decimal(text, number);
}
template <>
inline bool integral_conversion<unsigned long>(const std::string& text,
                                               unsigned long& number) noexcept {
  return perfmodel::read_decimal(text, number);
}
template <>
inline bool lexical_cast<double>(const std::string& text, double& number) {
  return perfmodel::read_decimal(text, number);
}

}  // namespace CLI::detail

#include <CLI/CLI.hpp>
