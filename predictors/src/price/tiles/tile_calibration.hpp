#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"
#include "price/tiles/tile_time.hpp"

namespace perfmodel::tiles {

/// A product timed on the GPU, without launch cost.
struct MeasuredProduct {
  GemmShape shape;
  double measured_us = 0;
};

/// A measured product and the fastest schedule of a space.
struct CalibrationRow {
  MeasuredProduct product;
  RankedTile best;
};

/// The library's time of a product if its choice of kernel is unknown, from a few measured products
/// and the fastest schedule of a space:
///
///   t = t_schedule exp(w . x)
///   x = 1, log share of the tiles that the product fills, log of rounded-up over real waves (at
///       most 64) / 2, log2(k / 512) / 4, log(load / compute) within -2 and 2,
///       log2(t_schedule / 16 us) / 4, fixed time over t_schedule
///
/// w by ridge regression on log(measured / t_schedule) with a prior of two rows for "no
/// correction", a tenth of that for the level. Tried on bf16 products of A100, H100 and B200 with
/// 50 rows; the errors, and the best constant ratio's, are asserted (`TileCalibration.*`) and in
/// docs/tiles.md.
class TileCalibration {
 public:
  static constexpr std::size_t kTerms = 7;
  static constexpr std::size_t kFewestRows = 10;

  /// At least one row; the answer gets closer to "no correction" with fewer.
  static TileCalibration fit(std::span<const CalibrationRow> rows);

  double library_us(const GemmShape& shape, const RankedTile& best) const;

 private:
  std::array<double, kTerms> weights_{};
};

/// Mean absolute errors, as shares, of rows that were kept out: every fifth row at a time.
struct CalibrationErrors {
  double calibrated = 0;
  double constant = 0;  ///< schedule times the median ratio of the rows that were not kept out
  double schedule = 0;  ///< the fastest schedule as it is
};
/// At least five rows.
CalibrationErrors kept_out_errors(std::span<const CalibrationRow> rows);

/// Quantiles of 5 and 95 % of measured over predicted, each row predicted from the other four
/// fifths.
struct CalibrationRange {
  double low = 1, high = 1;
};
CalibrationRange kept_out_range(std::span<const CalibrationRow> rows);

/// Each product with its fastest schedule. Errors: a GPU that cannot run the space, fewer than
/// `TileCalibration::kFewestRows` products.
Result<std::vector<CalibrationRow>> calibration_rows(TileSpace space,
                                                     std::span<const MeasuredProduct> products,
                                                     const Gpu& gpu);

}  // namespace perfmodel::tiles
