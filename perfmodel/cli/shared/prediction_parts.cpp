#include "prediction_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "terminal/text_table.hpp"

namespace perfmodel::cli {

std::string TimeUnit::operator()(double us) const {
  return milliseconds_ ? milliseconds(us) : fmt::format("{:.1f}", us);
}

std::vector<std::string> family_cells(const FamilyTotal& family, const TimeUnit& time,
                                      double all_us) {
  if (family.family == KernelFamily::kPart) return {"within others", count_text(family.count), "-"};
  return {std::string(to_string(family.family)), count_text(family.count), time(family.time_us),
          percent_of(family.time_us, all_us),    time(family.low_us),      time(family.high_us),
          std::string(to_string(family.bound)),  std::string(family.model)};
}

std::vector<std::string> unmodelled_ops(const Prediction::Coverage& coverage) {
  std::vector<std::string> ops;
  for (const auto& entry : coverage.unmodelled_ops) {
    ops.push_back(fmt::format("{} ({})", entry.op, entry.count));
  }
  return ops;
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

std::string unmodelled_text(const std::vector<std::string>& ops) {
  if (ops.empty()) return "";
  return "\n" +
         wrapped(fmt::format("not modelled, so not in these times: {}", fmt::join(ops, ", ")), "  ",
                 2);
}

}  // namespace perfmodel::cli
