#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "perfmodel/result.hpp"
#include "svg_panel.hpp"

/// Plots of prediction errors. Each plot is a panel; svg_document() lays panels out in one file.
/// Times are in microseconds, errors are relative (0.1 = 10 %). Same input, same bytes.
///
/// All plots refuse (ErrorCode::kImpossible): nothing to draw, values that are not finite, times
/// and numbers of points that are not above 0, which logarithmic axes have no place for (times:
/// from 1e-9 to 1e15 us).
namespace perfmodel {

/// Measured and predicted times of rows that share a colour: an op, a device.
struct TimeGroup {
  std::string name;
  std::vector<double> measured_us, predicted_us;
};

/// Predicted against measured time on logarithmic axes of the same range, with the diagonal and the
/// bands of 10 and 25 % around it. The legend gives rows and MAPE per group, of all its rows.
/// Beyond ten groups the smallest ones share grey.
struct ScatterPlot {
  std::string title;
  std::vector<TimeGroup> groups;
  /// With more rows than this, each group shows its share (rounded up), drawn by random_sample().
  std::size_t max_points = 3000;
};
Result<SvgPanel> scatter_panel(const ScatterPlot& plot);

/// Signed errors per bin of measured time (1-2-5 steps; decades beyond eight decades): boxes from
/// p10 to p90 and from p25 to p75, a line at the median. Rows of bins with fewer than five are
/// drawn one by one. The number of rows is written above each bin. Boxes and points beyond +300 %
/// end at the edge, marked by a triangle.
struct ErrorBySizePlot {
  std::string title;
  std::vector<double> measured_us, predicted_us;
};
Result<SvgPanel> error_by_size_panel(const ErrorBySizePlot& plot);

/// Error after fitting on `measured_points` points: the centre and spread of several draws.
struct FewShotPoint {
  double measured_points = 0;  ///< above 0
  double error = 0, low = 0, high = 0;
};
struct FewShotSeries {
  std::string name;
  std::vector<FewShotPoint> points;  ///< any order; no number of points twice
};
/// An error that needs no measured points, as a horizontal line.
struct ErrorLevel {
  std::string name;
  double error = 0;
};
/// Lines with their spread as a band; logarithmic x. At most 20 series and levels together.
struct FewShotPlot {
  std::string title;
  std::vector<FewShotSeries> series;
  std::vector<ErrorLevel> levels;
  std::string error_label = "mean absolute error";
};
Result<SvgPanel> few_shot_panel(const FewShotPlot& plot);

}  // namespace perfmodel
