#include "svg_axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/number_text.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::svg {
namespace {

constexpr double kLinearTicks = 6;
constexpr double kLogMargin = 0.03;  // share of the range, at both ends

double room_needed(const Tick& a, const Tick& b, Side side) {
  if (side == Side::kLeft) return kTickFontSize * 1.4;
  return (text_width(a.label, kTickFontSize) + text_width(b.label, kTickFontSize)) / 2 + 8;
}

bool labels_fit(const std::vector<Tick>& ticks, Side side) {
  const Tick* last = nullptr;
  for (const Tick& tick : ticks) {
    if (tick.label.empty()) continue;
    if (last && tick.at - last->at < room_needed(*last, tick, side)) return false;
    last = &tick;
  }
  return true;
}

/// 1, 2 or 5 times a power of ten, at least `step`.
double nice_step(double step) {
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= step * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string thousands(double value) {
  return grouped(static_cast<std::size_t>(std::nearbyint(value)));
}

}  // namespace

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

double text_width(std::string_view text, double font_size) {
  return 0.6 * font_size * static_cast<double>(characters(text));
}

std::string label_text(double value, Unit unit) {
  switch (unit) {
    case Unit::kTime:
      if (value < 1) return fmt::format("{:.4g} ns", value * 1e3);
      if (value < 1e3) return fmt::format("{:.4g} µs", value);
      if (value < 1e6) return fmt::format("{:.4g} ms", value / 1e3);
      return fmt::format("{:.4g} s", value / 1e6);
    case Unit::kCount:
      return value >= 1e3 && value < 1e9 ? thousands(value) : fmt::format("{:.4g}", value);
    case Unit::kPercent: return fmt::format("{:.4g} %", value * 100);
    case Unit::kSignedPercent:
      if (value == 0) return "0 %";
      return fmt::format("{}{:.4g} %", value < 0 ? "−" : "+", std::abs(value) * 100);
  }
  return {};
}

Axis::Axis(const AxisRequest& request) : scale_(request.scale), length_(request.length) {
  PERFMODEL_CHECK(std::isfinite(request.low) && std::isfinite(request.high) &&
                  request.low <= request.high && request.length > 0);
  if (scale_ == Scale::kLog) {
    PERFMODEL_CHECK(request.low > 0);
    make_log(request);
  } else {
    make_linear(request);
  }
}

double Axis::at(double value) const {
  const double place = scale_ == Scale::kLog ? std::log10(value) : value;
  return (place - begin_) / (end_ - begin_) * length_;
}

void Axis::make_linear(const AxisRequest& request) {
  double low = request.low, high = request.high;
  if (high - low <= 1e-9 * std::max(std::abs(low), std::abs(high)) || high == low) {
    const double margin = low == 0 ? 0.05 : 0.05 * std::abs(low);
    low -= margin;
    high += margin;
  }
  double step = nice_step((high - low) / kLinearTicks);
  for (;; step = nice_step(step * 1.5)) {
    const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
    begin_ = first * step;
    end_ = last * step;
    ticks_.clear();
    for (double i = first; i <= last; ++i) {
      ticks_.push_back({at(i * step), label_text(i == 0 ? 0 : i * step, request.unit)});
    }
    if (ticks_.size() <= 3 || labels_fit(ticks_, request.side)) return;
  }
}

void Axis::make_log(const AxisRequest& request) {
  const double low = std::log10(request.low), high = std::log10(request.high);
  double margin = kLogMargin * (high - low);
  if (high - low + 2 * margin < 1) margin = (1 - (high - low)) / 2;
  begin_ = low - margin;
  end_ = high + margin;

  if (!request.marks.empty()) return mark_log(request);

  // From the densest labels that fit: 1-2-5, decades, every second, third, ... decade.
  const int first = static_cast<int>(std::floor(begin_)), last = static_cast<int>(std::ceil(end_));
  const bool minor_lines = end_ - begin_ <= 8;
  for (int every = 0;; ++every) {
    ticks_.clear();
    for (int decade = first; decade <= last; ++decade) {
      for (int digit = 1; digit <= 9; ++digit) {
        const double place = decade + std::log10(digit);
        if (place < begin_ || place > end_) continue;
        const bool labelled =
            every == 0 ? digit == 1 || digit == 2 || digit == 5 : digit == 1 && decade % every == 0;
        if (!labelled && !(minor_lines || digit == 1)) continue;
        Tick tick{.at = (place - begin_) / (end_ - begin_) * length_};
        if (labelled) tick.label = label_text(digit * std::pow(10, decade), request.unit);
        ticks_.push_back(std::move(tick));
      }
    }
    if (labels_fit(ticks_, request.side)) return;
  }
}

// Labels of all marks, or of every second, third, ... one up to the last.
void Axis::mark_log(const AxisRequest& request) {
  const std::size_t count = request.marks.size();
  for (std::size_t every = 1;; ++every) {
    ticks_.clear();
    for (std::size_t i = 0; i < count; ++i) {
      Tick tick{.at = at(request.marks[i])};
      if ((count - 1 - i) % every == 0) tick.label = label_text(request.marks[i], request.unit);
      ticks_.push_back(std::move(tick));
    }
    if (every >= count || labels_fit(ticks_, request.side)) return;
  }
}

}  // namespace perfmodel::svg
