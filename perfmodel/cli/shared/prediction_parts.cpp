#include "prediction_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "terminal/text_table.hpp"

namespace perfmodel::cli {

std::string TimeUnit::operator()(double us) const {
  return milliseconds_ ? milliseconds(us) : fmt::format("{:.1f}", us);
}

std::string op_title(std::string_view name) {
  constexpr std::string_view kEngine = "autograd::engine::evaluate_function: ";
  if (!name.starts_with(kEngine)) return std::string(name);
  return "autograd: " + std::string(name.substr(kEngine.size()));
}

std::string count_text(double count) {
  const double whole = std::round(count);
  if (std::abs(count - whole) < 0.05) return grouped(static_cast<std::size_t>(whole));
  return fmt::format("{:.1f}", count);
}

std::string joined(const std::vector<std::string>& list, std::size_t limit) {
  std::string text;
  for (std::size_t i = 0; i < std::min(limit, list.size()); ++i) {
    text += (i > 0 ? ", " : "") + list[i];
  }
  if (list.size() > limit) text += fmt::format(" and {} more", list.size() - limit);
  return text;
}

std::string rate_text(double rate) {
  return rate < 100 ? fmt::format("{:.3g}", rate) : grouped(std::llround(rate));
}

std::string power_text(const Prediction& prediction, const Gpu& gpu) {
  const auto watt = prediction.power_w();
  if (!watt) return "";
  std::string text = fmt::format("{:.0f} of {:.0f} W on average, {} J", *watt, gpu.tdp_w,
                                 rate_text(*prediction.energy_j));
  if (prediction.limited_us > 0) {
    text += fmt::format(
        "; the limit slows kernels by {} in all",
        percent_of(prediction.limited_us, prediction.kernel_sum_us - prediction.limited_us));
  }
  return text;
}

}  // namespace perfmodel::cli
