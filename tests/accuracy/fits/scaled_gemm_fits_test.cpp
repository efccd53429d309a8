#include <cstdio>
#include <set>

#include "../../scratch.hpp"
#include "../scaled_tables.hpp"
#include "training/train.hpp"

/// Products in fp8 and fp4 with the kernel that quantises, fitted anew by the shipped recipe: whole
/// weights (n, k) kept out with all their sizes m, and whole GPUs.
namespace perfmodel {
namespace scaled_gemm_fits_test {

using training::LeftOut;

/// Every third of the weights, for all m and GPUs alike: enough to fit, in a few seconds.
KernelTable third_of(KernelTable table) {
  std::set<std::pair<std::int64_t, std::int64_t>> weights;
  for (const KernelRow& row : table.rows) {
    const auto& shape = std::get<GemmShape>(row.work.shape);
    weights.insert({shape.n, shape.k});
  }
  std::erase_if(table.rows, [&](const KernelRow& row) {
    const auto& shape = std::get<GemmShape>(row.work.shape);
    return std::distance(weights.begin(), weights.find({shape.n, shape.k})) % 3 != 0;
  });
  return table;
}

training::ModelReport fit(const std::vector<KernelTable>& tables) {
  return training::train(tables, {.family = KernelFamily::kGemm},
                         test_support::scratch() / "scaled.json")
      .value()
      .models.at(0);
}

/// Mean absolute error of the kept-out rows by GPU.
std::map<std::string, double> errors_of(const training::Validation& kept) {
  std::map<std::string, double> sums, rows;
  for (std::size_t i = 0; i < kept.gpus.size(); ++i) {
    sums[kept.gpus[i]] += std::abs(kept.predicted_us[i] / kept.measured_us[i] - 1);
    ++rows[kept.gpus[i]];
  }
  for (auto& [gpu, sum] : sums) sum /= rows[gpu];
  return sums;
}

void expect_kept_out(const training::ModelReport& report, double limit) {
  for (const auto& [gpu, error] : errors_of(report.grouped)) {
    std::printf("%s, new weights, %s: mean %.2f %%\n", report.name.c_str(), gpu.c_str(),
                100 * error);
    EXPECT_LE(error, limit) << gpu;
  }
  std::printf("%s, new weights: %.1f %% of %zu inside low..high\n", report.name.c_str(),
              100 * report.grouped.coverage, report.grouped.coverage_rows);
  EXPECT_NEAR(report.grouped.coverage, 0.90, 0.05);
}

/// B200 and GB200 are siblings; H100 and RTX PRO 6000 have none here. (The figures of the heuristic
/// were chosen on all of them, so a GPU left out of the trees is not wholly new.)
void expect_left_out(const training::ModelReport& report) {
  for (const LeftOut& left : report.left_out) {
    const bool has_sibling = left.gpu == "b200-sxm-180gb" || left.gpu == "gb200";
    std::printf(
        "%s without %s: learned %.1f %%, heuristic %.1f, roofline %.1f, best constant ratio %.1f "
        "(%s); %.0f %% inside low..high\n",
        report.name.c_str(), left.gpu.c_str(), 100 * left.learned.mape, 100 * left.heuristic.mape,
        100 * left.roofline.mape, 100 * left.best_ratio.mape, left.best_ratio_gpu.c_str(),
        100 * left.coverage);
    EXPECT_LE(left.learned.mape, has_sibling ? 0.13 : 0.25) << left.gpu;
    EXPECT_LT(left.learned.mape, left.roofline.mape) << left.gpu;
  }
}

TEST(ScaledGemmFits, Fp8NewWeightsAndOneGpuLeftOut) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::vector<KernelTable> tables;
  tables.push_back(third_of(accuracy::layers_of("gemm_fp8_token.csv.gz", Scaling::kToken)));
  tables.push_back(third_of(accuracy::layers_of("gemm_fp8_block.csv.gz", Scaling::kBlock)));
  const auto report = fit(tables);
  expect_kept_out(report, 0.09);
  ASSERT_EQ(report.left_out.size(), 4u);
  expect_left_out(report);
}

TEST(ScaledGemmFits, Fp4NewWeightsAndOneGpuLeftOut) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::vector<KernelTable> tables;
  tables.push_back(third_of(accuracy::layers_of("gemm_nvfp4.csv.gz", Scaling::kBlock)));
  const auto report = fit(tables);
  expect_kept_out(report, 0.10);
  ASSERT_EQ(report.left_out.size(), 3u);
  expect_left_out(report);
}

}  // namespace scaled_gemm_fits_test
}  // namespace perfmodel
