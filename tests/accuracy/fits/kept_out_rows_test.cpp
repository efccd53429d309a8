#include "training/train.hpp"

#include <array>
#include <cstdio>
#include <map>
#include <set>

#include "../../scratch.hpp"
#include "../accuracy_support.hpp"

/// Kernel models fitted anew by the shipped recipe, judged on rows that were kept out.
namespace perfmodel {
namespace kept_out_rows_test {

using training::LeftOut;
using training::ModelReport;
using training::RangeCheck;
using training::RowChoice;
using training::Validation;

std::filesystem::path gpu_folder() {
  return std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
}

KernelTable table_of(const char* file, const char* dtype = "") {
  return read_kernel_table(*accuracy::public_data() / file,
                           {.gpu_folder = gpu_folder(), .dtype = dtype, .needs_time = true})
      .value();
}

std::filesystem::path model_file(const std::string& name) {
  return test_support::scratch() / (name + ".json");
}

ModelReport fit_family(const std::vector<KernelTable>& tables, KernelFamily family, RowChoice rows,
                       bool leaves_gpus_out) {
  training::TrainOptions options;
  options.rows = rows;
  options.family = family;
  options.leaves_gpus_out = leaves_gpus_out;
  return training::train(tables, options, model_file(std::string(to_string(family))))
      .value()
      .models.at(0);
}

ErrorSummary summary_of(const Validation& kept) {
  return summarize_errors(kept.measured_us, kept.predicted_us).value();
}

/// Lin et al. report geometric means below 10 % per kernel on a GPU they measured.
void expect_random_rows(const ModelReport& report, double geomean_limit) {
  const ErrorSummary errors = summary_of(report.random);
  std::printf(
      "%s: %zu random rows kept out: geometric mean %.2f %%, mean %.2f %%, bias %+.2f %%; "
      "%.1f %% of %zu inside low..high\n",
      report.name.c_str(), errors.rows, 100 * errors.geomean_ape, 100 * errors.mape,
      100 * errors.bias, 100 * report.random.coverage, report.random.coverage_rows);
  EXPECT_LE(100 * errors.geomean_ape, geomean_limit);
  // 0.90 +- 0.03 until boards had ranges of their own, which hold 94 % of the convolutions.
  EXPECT_NEAR(report.random.coverage, 0.90, 0.05);
}

/// A rival that needs the new GPU: the constant is the best for the very rows. `exceptions`: where
/// it wins.
void expect_better_than_scaled_roofline(const ModelReport& report,
                                        const std::set<std::string>& exceptions = {}) {
  for (const LeftOut& left : report.left_out) {
    if (exceptions.contains(left.gpu)) continue;
    EXPECT_LT(left.learned.mape, left.scaled_roofline.mape) << report.name << " " << left.gpu;
  }
}

void print_left_out(const ModelReport& report) {
  for (const LeftOut& left : report.left_out) {
    std::printf(
        "%s without %s: %zu rows, learned %.1f %%, heuristic %.1f, roofline %.1f, times the best "
        "constant %.1f, best constant ratio %.1f (%s), mean ratio %.1f; %.0f %% inside low..high\n",
        report.name.c_str(), left.gpu.c_str(), left.learned.rows, 100 * left.learned.mape,
        100 * left.heuristic.mape, 100 * left.roofline.mape, 100 * left.scaled_roofline.mape,
        100 * left.best_ratio.mape, left.best_ratio_gpu.c_str(), 100 * left.mean_ratio_mape,
        100 * left.coverage);
  }
}

/// Every GPU's kept-out rows lie inside low to high, the worst of each level named. If GPUs are
/// left out, one range serves all: it holds the worst, and more than 95 % of others. `by_others` is
/// the range for a GPU that is in no table.
void expect_ranges(const ModelReport& report) {
  for (const Knowledge level :
       {Knowledge::kBoard, Knowledge::kChip, Knowledge::kArchitecture, Knowledge::kNone}) {
    const RangeCheck* worst = nullptr;
    std::size_t gpus = 0;
    for (const RangeCheck& check : report.ranges) {
      if (check.level != level) continue;
      ++gpus;
      if (!worst || check.inside < worst->inside) worst = &check;
      EXPECT_GE(check.inside, 0.85) << to_string(level) << " " << check.gpu;
      if (level == Knowledge::kBoard) {
        EXPECT_LE(check.inside, 0.95) << check.gpu;
      }
    }
    if (!worst) continue;
    std::printf("%s, %s known, %zu GPUs: worst %.1f %% of %zu rows inside low..high (%s)\n",
                report.name.c_str(), to_string(level).data(), gpus, 100 * worst->inside,
                worst->rows, worst->gpu.c_str());
  }
}

TEST(KeptOutRows, Gemm) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::vector<KernelTable> tables;
  tables.push_back(table_of("neusight/kernels_bmm.csv.gz"));
  tables.push_back(table_of("neusight/kernels_linear.csv.gz"));
  expect_random_rows(fit_family(tables, KernelFamily::kGemm, RowChoice::kPaper, false), 5);
}

TEST(KeptOutRows, Elementwise) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::vector<KernelTable> tables;
  tables.push_back(table_of("neusight/kernels_elementwise.csv.gz"));
  const auto report = fit_family(tables, KernelFamily::kElementwise, RowChoice::kPaper, true);
  expect_random_rows(report, 5);
  expect_ranges(report);
  print_left_out(report);
}

TEST(KeptOutRows, SoftmaxAndLayerNorm) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::vector<KernelTable> tables;
  tables.push_back(table_of("neusight/kernels_softmax_ln.csv.gz"));
  for (KernelFamily family : {KernelFamily::kSoftmax, KernelFamily::kNorm}) {
    const auto report = fit_family(tables, family, RowChoice::kPaper, true);
    expect_random_rows(report, 5);
    expect_ranges(report);
    print_left_out(report);
  }
}

// The goal is 5 %. Libraries change between three algorithms by rules of their own, which leaves 7
// % (docs/kernel_models.md says what was tried).
TEST(KeptOutRows, ConvolutionMissesFivePercent) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::vector<KernelTable> tables;
  tables.push_back(table_of("neusight/kernels_conv2d.csv.gz"));
  expect_random_rows(fit_family(tables, KernelFamily::kConvolution, RowChoice::kAll, false), 7.5);
}

// A GPU that no row was fitted on: better than the data sheet alone, next to the best constant
// ratio, which is fitted on the very rows.
TEST(DeepBench, OneGpuLeftOut) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const std::pair<const char*, KernelFamily> parts[] = {
      {"deepbench/gemm.csv.gz", KernelFamily::kGemm},
      {"deepbench/conv.csv.gz", KernelFamily::kConvolution}};
  int pairs = 0, ahead = 0;
  for (const auto& [file, family] : parts) {
    std::vector<KernelTable> tables;
    tables.push_back(table_of(file));
    const auto report = fit_family(tables, family, RowChoice::kAll, true);
    print_left_out(report);
    // P100 and GTX 1080 Ti run products at 0.95 of their peak, all others far below: a newer
    // library.
    const bool is_gemm = family == KernelFamily::kGemm;
    expect_better_than_scaled_roofline(
        report,
        is_gemm ? std::set<std::string>{"gtx-1080-ti", "p100-pcie-16gb"} : std::set<std::string>{});
    double learned = 0, roofline = 0;
    for (const LeftOut& left : report.left_out) {
      learned += left.learned.mape / static_cast<double>(report.left_out.size());
      roofline += left.roofline.mape / static_cast<double>(report.left_out.size());
      for (const auto& [other, ratio] : left.ratio_mapes) {
        ++pairs;
        ahead += left.learned.mape < ratio;
      }
    }
    std::printf("%s: mean of %zu GPUs: learned %.1f %%, roofline %.1f %%\n", file,
                report.left_out.size(), 100 * learned, 100 * roofline);
    EXPECT_LT(learned, roofline);
    EXPECT_LE(learned, 0.30);
  }
  std::printf("ahead of the other GPU's times and a constant in %d of %d pairs\n", ahead, pairs);
  EXPECT_GE(3 * ahead, 2 * pairs);
}

/// Mean absolute error of the kept-out rows of one op.
double error_of(const Validation& kept, std::string_view op) {
  double sum = 0, rows = 0;
  for (std::size_t i = 0; i < kept.ops.size(); ++i) {
    if (kept.ops[i] != op) continue;
    sum += std::abs(kept.predicted_us[i] / kept.measured_us[i] - 1);
    ++rows;
  }
  return rows > 0 ? sum / rows : 1;
}

// Whole weights (n, k) with all their sizes m kept out, and whole GPUs. The figures of the
// heuristic below the trees were chosen on these five GPUs, so a GPU left out of the trees is not
// wholly new.
TEST(HalfGemm, NewWeightsAndOneGpuLeftOut) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::vector<KernelTable> tables;
  tables.push_back(table_of("silicon/gemm_bf16.csv.gz"));
  tables.push_back(table_of("silicon/bmm_bf16.csv.gz"));
  const auto report = fit_family(tables, KernelFamily::kGemm, RowChoice::kAll, true);
  const double single = error_of(report.grouped, "gemm"), batched = error_of(report.grouped, "bmm");
  std::printf("new weights: gemm %.2f %%, bmm %.2f %%, %.1f %% inside low..high\n", 100 * single,
              100 * batched, 100 * report.grouped.coverage);
  EXPECT_LE(single, 0.07);
  EXPECT_LE(batched, 0.12);
  EXPECT_NEAR(report.grouped.coverage, 0.90, 0.05);
  print_left_out(report);
  expect_better_than_scaled_roofline(report);
  ASSERT_EQ(report.left_out.size(), 5u);
  for (const LeftOut& left : report.left_out) {
    EXPECT_LE(left.learned.mape, 0.13) << left.gpu;
    EXPECT_LT(left.learned.mape, left.best_ratio.mape) << left.gpu;
  }
  expect_ranges(report);
}

TEST(Fp8Gemm, NewShapesAndTheOtherGpu) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  std::vector<KernelTable> tables;
  tables.push_back(table_of("fp8_gemm/gemm_fp8.csv.gz", "fp8"));
  const auto report = fit_family(tables, KernelFamily::kGemm, RowChoice::kAll, true);
  const ErrorSummary shapes = summary_of(report.grouped);
  std::printf(
      "new shapes: %zu rows, mean %.2f %% (PipeWeave on its test rows: H20 1.9, H800 4.1)\n",
      shapes.rows, 100 * shapes.mape);
  EXPECT_LE(shapes.mape, 0.02);
  print_left_out(report);
  expect_better_than_scaled_roofline(report);
  for (const LeftOut& left : report.left_out) {
    EXPECT_LT(left.learned.mape, left.best_ratio.mape) << left.gpu;
    EXPECT_LE(left.learned.mape, left.gpu == "h800" ? 0.15 : 0.25) << left.gpu;
  }
}

// Shapes of transformers on the five GPUs that training data exists for; none of these rows was
// fitted. (Heuristic constants were looked at on them: docs/kernel_models.md.)
TEST(LlmShapes, KernelsOverATenthOfAMillisecond) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const std::pair<const char*, const char*> parts[] = {
      {"neusight/kernels_bmm.csv.gz", "gemm-float32"},
      {"neusight/kernels_linear.csv.gz", "gemm-float32"},
      {"neusight/kernels_elementwise.csv.gz", "elementwise-float32"},
      {"neusight/kernels_softmax_ln.csv.gz", "softmax-float32"},
      {"neusight/kernels_softmax_ln.csv.gz", "norm-float32"}};
  std::map<std::string, std::pair<std::vector<double>, std::vector<double>>> by_op;
  std::vector<double> measured, predicted;
  for (const auto& [file, model] : parts) {
    const auto path = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "models" /
                      (std::string(model) + ".json");
    const auto report =
        training::evaluate(table_of(file), path, {.only_llm = true, .min_us = 100}).value();
    for (std::size_t i = 0; i < report.rows.measured_us.size(); ++i) {
      if (report.rows.gpus[i].starts_with("mi")) continue;  // fitted there: nothing else exists
      auto& [own_measured, own_predicted] = by_op[report.rows.ops[i] + " " + report.rows.gpus[i]];
      own_measured.push_back(report.rows.measured_us[i]);
      own_predicted.push_back(report.rows.predicted_us[i]);
      measured.push_back(report.rows.measured_us[i]);
      predicted.push_back(report.rows.predicted_us[i]);
    }
  }
  for (const auto& [name, rows] : by_op) {
    const ErrorSummary errors = summarize_errors(rows.first, rows.second).value();
    std::printf("%-24s %5zu rows: mean %5.1f %%, bias %+5.1f %%\n", name.c_str(), errors.rows,
                100 * errors.mape, 100 * errors.bias);
  }
  const ErrorSummary all = summarize_errors(measured, predicted).value();
  std::printf("all %zu rows: mean %.2f %%, geometric mean %.2f %%\n", all.rows, 100 * all.mape,
              100 * all.geomean_ape);
  EXPECT_LE(all.mape, 0.10);
}

}  // namespace kept_out_rows_test
}  // namespace perfmodel
