#include "price/tiles/tile_calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/impossible.hpp"
#include "base/statistics.hpp"

namespace perfmodel::tiles {
namespace {

constexpr std::size_t kTerms = TileCalibration::kTerms;
constexpr std::size_t kFolds = 5;

using TermRow = std::array<double, kTerms>;

TermRow terms_of(const GemmShape& shape, const RankedTile& best) {
  constexpr double kMostWaves = 64, kUsualDepth = 512, kUsualUs = 16;
  const auto padded = [](std::int64_t size, int tile) {
    return std::ceil(static_cast<double>(size) / tile) * tile;
  };
  const TileTime& time = best.time;
  const double filled =
      static_cast<double>(shape.m) * static_cast<double>(shape.n) /
      (padded(shape.m, best.schedule.block.m) * padded(shape.n, best.schedule.block.n));
  const double tail = std::min(std::ceil(time.waves) / time.waves, kMostWaves);
  return {1,
          std::log(filled),
          std::log(tail) / 2,
          std::log2(static_cast<double>(shape.k) / kUsualDepth) / 4,
          std::clamp(std::log(time.load_us / time.compute_us), -2.0, 2.0),
          std::log2(time.time_us / kUsualUs) / 4,
          time.fixed_us / time.time_us};
}

/// Solves A x = b for a symmetric positive A, by Cholesky's L L^T in the place of A.
TermRow solve(std::array<TermRow, kTerms> a, TermRow b) {
  for (std::size_t i = 0; i < kTerms; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      double sum = a[i][j];
      for (std::size_t k = 0; k < j; ++k) sum -= a[i][k] * a[j][k];
      a[i][j] = i == j ? std::sqrt(sum) : sum / a[j][j];
    }
  }
  for (std::size_t i = 0; i < kTerms; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= a[i][k] * b[k];
    b[i] /= a[i][i];
  }
  for (std::size_t i = kTerms; i-- > 0;) {
    for (std::size_t k = i + 1; k < kTerms; ++k) b[i] -= a[k][i] * b[k];
    b[i] /= a[i][i];
  }
  return b;
}

double ratio_of(const CalibrationRow& row) {
  return row.product.measured_us / row.best.time.time_us;
}

/// Calls `judge` with each row, a fit on the folds that it is not in, and their median ratio.
template <class Judge>
void each_kept_out(std::span<const CalibrationRow> rows, Judge&& judge) {
  for (std::size_t fold = 0; fold < kFolds; ++fold) {
    std::vector<CalibrationRow> others;
    std::vector<double> ratios;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i % kFolds == fold) continue;
      others.push_back(rows[i]);
      ratios.push_back(ratio_of(rows[i]));
    }
    const TileCalibration fitted = TileCalibration::fit(others);
    const double constant = median_of(std::move(ratios));
    for (std::size_t i = fold; i < rows.size(); i += kFolds) judge(rows[i], fitted, constant);
  }
}

}  // namespace

TileCalibration TileCalibration::fit(std::span<const CalibrationRow> rows) {
  constexpr double kPrior = 2, kPriorOfLevel = 0.2;
  std::array<TermRow, kTerms> gram{};
  TermRow moment{};
  for (std::size_t i = 0; i < kTerms; ++i) gram[i][i] = i == 0 ? kPriorOfLevel : kPrior;
  for (const CalibrationRow& row : rows) {
    const TermRow x = terms_of(row.product.shape, row.best);
    const double y = std::log(ratio_of(row));
    for (std::size_t i = 0; i < kTerms; ++i) {
      moment[i] += x[i] * y;
      for (std::size_t j = 0; j < kTerms; ++j) gram[i][j] += x[i] * x[j];
    }
  }
  TileCalibration made;
  made.weights_ = solve(gram, moment);
  return made;
}

double TileCalibration::library_us(const GemmShape& shape, const RankedTile& best) const {
  const TermRow x = terms_of(shape, best);
  double sum = 0;
  for (std::size_t i = 0; i < kTerms; ++i) sum += weights_[i] * x[i];
  return best.time.time_us * std::exp(sum);
}

CalibrationErrors kept_out_errors(std::span<const CalibrationRow> rows) {
  CalibrationErrors errors;
  each_kept_out(rows, [&](const CalibrationRow& row, const TileCalibration& fitted,
                          double constant) {
    const double measured = row.product.measured_us, schedule = row.best.time.time_us;
    errors.calibrated += std::abs(fitted.library_us(row.product.shape, row.best) / measured - 1);
    errors.constant += std::abs(constant * schedule / measured - 1);
    errors.schedule += std::abs(schedule / measured - 1);
  });
  const auto count = static_cast<double>(rows.size());
  return {errors.calibrated / count, errors.constant / count, errors.schedule / count};
}

CalibrationRange kept_out_range(std::span<const CalibrationRow> rows) {
  constexpr double kLow = 0.05, kHigh = 0.95;
  std::vector<double> ratios;
  each_kept_out(rows, [&](const CalibrationRow& row, const TileCalibration& fitted, double) {
    ratios.push_back(row.product.measured_us / fitted.library_us(row.product.shape, row.best));
  });
  std::ranges::sort(ratios);
  return {std::min(1.0, quantile(ratios, kLow)), std::max(1.0, quantile(ratios, kHigh))};
}

Result<std::vector<CalibrationRow>> calibration_rows(TileSpace space,
                                                     std::span<const MeasuredProduct> products,
                                                     const Gpu& gpu) {
  if (products.size() < TileCalibration::kFewestRows) {
    return impossible(
        fmt::format("at least {} measured products of {} in {}", TileCalibration::kFewestRows,
                    gpu.name, space == TileSpace::kMma ? "fp16 or bf16" : "fp32"),
        fmt::format("{}", products.size()));
  }
  const TileSpaceList list = tile_space(space);
  std::vector<CalibrationRow> rows;
  for (const MeasuredProduct& product : products) {
    PERFMODEL_TRY(ranked, rank_tiles(list, space, product.shape, true, gpu));
    rows.push_back({product, ranked->front()});
  }
  return rows;
}

}  // namespace perfmodel::tiles
