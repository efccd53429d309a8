#include "result_field.hpp"

#include <fmt/format.h>

#include <cmath>

#include "json/csv_file.hpp"

namespace perfmodel {

OrderedJson rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  const double result = std::round(value * 1e3) / 1e3;
  return result == 0 ? 0.0 : result;  // no -0.0
}

OrderedJson six_digits(double value) {
  if (value == 0 || !std::isfinite(value)) return rounded(value);
  const double unit = std::pow(10, std::floor(std::log10(std::abs(value))) - 5);
  return unit < 1 ? std::round(value / unit) / std::round(1 / unit) : std::round(value);
}

OrderedJson with_digits(OrderedJson value, Digits digits) {
  if (digits == Digits::kAll || digits == Digits::kFourInTables) return value;
  if (value.is_structured()) {
    for (auto& part : value) part = with_digits(std::move(part), digits);
  }
  if (!value.is_number_float()) return value;
  const auto number = value.get<double>();
  if (digits == Digits::kWhole) return static_cast<std::int64_t>(std::llround(number));
  return digits == Digits::kSix ? six_digits(number) : rounded(number);
}

std::string csv_cell(const OrderedJson& value, Digits digits) {
  if (value.is_null()) return "";
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  if (value.is_string()) return csv_cell(value.get<std::string>());
  if (!value.is_number_float()) return value.dump();
  const auto number = value.get<double>();
  return digits == Digits::kAll             ? fmt::format("{}", number)
         : digits == Digits::kThreeDecimals ? fmt::format("{:.3f}", number)
         : digits == Digits::kFourInTables  ? fmt::format("{:.4f}", number)
         : digits == Digits::kWhole         ? fmt::format("{:.0f}", number)
                                            : six_digits_text(number);
}

std::string six_digits_text(double value) { return fmt::format("{:.6g}", value); }

}  // namespace perfmodel
