// Batched bf16 products, for which the library's choice of kernel is unknown: predicted from 50
// measured ones by features of the fastest tile schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "accuracy_support.hpp"
#include "base/random_sample.hpp"
#include "base/statistics.hpp"
#include "price/tiles/tile_calibration.hpp"
#include "tables/kernel_table.hpp"

namespace perfmodel {
namespace tile_calibration_test {

using tiles::CalibrationRow, tiles::TileCalibration;

double mean_error(const std::vector<CalibrationRow>& rows, const std::set<std::size_t>& used,
                  const auto& time_of) {
  std::vector<double> errors;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (used.contains(i)) continue;
    errors.push_back(std::abs(time_of(rows[i]) / rows[i].product.measured_us - 1));
  }
  return mean_of(errors);
}

// The form of the equation was chosen with these rows in view, its weights were not.
TEST(TileCalibration, FiftyMeasuredProductsBeatAConstantRatio) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  constexpr std::size_t kMeasured = 50, kDraws = 3;
  const auto gpus = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
  const auto table = read_kernel_table(*accuracy::public_data() / "silicon" / "bmm_bf16.csv.gz",
                                       {.gpu_folder = gpus, .needs_time = true})
                         .value();
  const std::map<std::string, double> limits = {
      {"a100-sxm-80gb", 0.14}, {"h100-sxm-80gb", 0.14}, {"b200-sxm-180gb", 0.14}};
  for (const auto& [name, limit] : limits) {
    const Gpu gpu = accuracy::gpu(name);
    std::vector<tiles::MeasuredProduct> products;
    for (const KernelRow& row : table.rows) {
      if (table.gpus[static_cast<std::size_t>(row.gpu)].name != name) continue;
      products.push_back({std::get<GemmShape>(row.work.shape), row.measured_us});
    }
    const auto rows = tiles::calibration_rows(tiles::TileSpace::kMma, products, gpu).value();
    double calibrated = 0, constant = 0, schedule = 0, heuristic = 0;
    for (std::size_t draw = 1; draw <= kDraws; ++draw) {
      std::vector<CalibrationRow> few;
      std::vector<double> ratios;
      std::set<std::size_t> used;
      for (const std::size_t i : random_sample(rows.size(), kMeasured, draw)) {
        few.push_back(rows[i]);
        ratios.push_back(rows[i].product.measured_us / rows[i].best.time.time_us);
        used.insert(i);
      }
      const TileCalibration fitted = TileCalibration::fit(few);
      const double ratio = median_of(ratios);
      const auto add = [&](double& sum, const auto& time_of) {
        sum += mean_error(rows, used, time_of) / kDraws;
      };
      add(calibrated, [&](const CalibrationRow& row) {
        return fitted.library_us(row.product.shape, row.best);
      });
      add(constant, [&](const CalibrationRow& row) { return ratio * row.best.time.time_us; });
      add(schedule, [&](const CalibrationRow& row) { return row.best.time.time_us; });
      add(heuristic, [&](const CalibrationRow& row) {
        return KernelModels::heuristic()
            .price(gemm_work(row.product.shape, DType::kBFloat16, true), gpu)
            .time.count();
      });
    }
    std::printf(
        "%-16s %3zu products, 50 measured: %4.1f %%; constant ratio %4.1f, schedules as "
        "they are %4.1f, the library's heuristic %4.1f\n",
        name.c_str(), rows.size(), 100 * calibrated, 100 * constant, 100 * schedule,
        100 * heuristic);
    EXPECT_LE(calibrated, limit) << name;
    EXPECT_LT(calibrated, constant) << name;
    EXPECT_LT(calibrated, heuristic) << name;
  }
}

}  // namespace tile_calibration_test
}  // namespace perfmodel
