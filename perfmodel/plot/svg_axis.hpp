#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace perfmodel::svg {

inline constexpr double kTickFontSize = 11;

/// Number of characters of UTF-8 text.
std::size_t characters(std::string_view text);

/// Width of text in pixels, on the wide side for common sans-serif fonts.
double text_width(std::string_view text, double font_size);

enum class Scale { kLinear, kLog };
enum class Side { kBottom, kLeft };
enum class Unit {
  kTime,           ///< microseconds; labels in ns, µs, ms, s
  kCount,          ///< 1, 10, 1,000
  kPercent,        ///< 0.1 is "10 %"
  kSignedPercent,  ///< 0.1 is "+10 %"
};
std::string label_text(double value, Unit unit);

struct Tick {
  double at = 0;      ///< pixels from the start of the axis
  std::string label;  ///< empty: a line only
};

struct AxisRequest {
  Scale scale = Scale::kLinear;
  Unit unit = Unit::kTime;
  Side side = Side::kBottom;
  double low = 0, high = 0;  ///< range of the data, finite; above 0 on logarithmic axes
  double length = 0;         ///< pixels
  /// Of a logarithmic axis: where the ticks are, growing; empty: 1, 2, 5, 10, ...
  std::vector<double> marks = {};
};

/// Maps values to pixels and has the ticks. Linear axes are extended to the next ticks, logarithmic
/// ones by a margin and to at least one decade. As many ticks are labelled as fit without overlap.
class Axis {
 public:
  explicit Axis(const AxisRequest& request);

  double length() const { return length_; }
  const std::vector<Tick>& ticks() const { return ticks_; }

  /// Pixels from the start of the axis; beyond [0, length] for values beyond the range.
  double at(double value) const;

 private:
  void make_linear(const AxisRequest& request);
  void make_log(const AxisRequest& request);
  void mark_log(const AxisRequest& request);

  Scale scale_ = Scale::kLinear;
  double begin_ = 0, end_ = 1;  ///< range; exponents of ten on logarithmic axes
  double length_ = 0;
  std::vector<Tick> ticks_;
};

}  // namespace perfmodel::svg
