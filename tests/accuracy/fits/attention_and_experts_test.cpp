// Attention, experts and linear attention, fitted anew by the shipped recipe and judged on whole
// head groups, layers and GPUs that were kept out. The figures of the architectures below the trees
// were chosen on these GPUs' rows, so that a GPU left out of the trees is not wholly new; what
// another architecture's figures do is asked in `relatives_test.cpp`.
#include <cstdio>
#include <map>
#include <set>

#include "../../scratch.hpp"
#include "../accuracy_support.hpp"
#include "base/accuracy.hpp"
#include "training/train.hpp"

namespace perfmodel {
namespace attention_and_experts_test {

using training::LeftOut;
using training::ModelReport;

std::filesystem::path gpus() {
  return std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
}

KernelTable silicon(const char* file) {
  return read_kernel_table(*accuracy::public_data() / "silicon" / file,
                           {.gpu_folder = gpus(), .needs_time = true})
      .value();
}

ModelReport fit_table(KernelTable table, KernelFamily family) {
  std::vector<KernelTable> tables;
  tables.push_back(std::move(table));
  const auto file =
      test_support::scratch() / ("kept-out-" + std::string(to_string(family)) + ".json");
  return training::train(tables, {.family = family}, file).value().models.at(0);
}

struct Times {
  std::vector<double> predicted, measured;
  double error() const { return summarize_errors(measured, predicted).value().mape; }
};

/// Kept-out rows by GPU.
std::map<std::string, Times> by_gpu(const training::Validation& kept) {
  std::map<std::string, Times> times;
  for (std::size_t i = 0; i < kept.gpus.size(); ++i) {
    times[kept.gpus[i]].predicted.push_back(kept.predicted_us[i]);
    times[kept.gpus[i]].measured.push_back(kept.measured_us[i]);
  }
  return times;
}

/// Error of the roofline times the constant that suits a GPU's rows best.
std::map<std::string, double> rooflines(const KernelTable& table) {
  std::map<std::string, Times> times;
  for (const KernelRow& row : table.rows) {
    const Gpu& gpu = table.gpus[static_cast<std::size_t>(row.gpu)];
    Times& own = times[gpu.name];
    own.predicted.push_back(KernelModels::roofline().price(row.work, gpu).time.count());
    own.measured.push_back(row.measured_us);
  }
  std::map<std::string, double> errors;
  for (auto& [gpu, own] : times) {
    const double constant = best_constant_ratio(own.predicted, own.measured).value();
    for (double& time : own.predicted) time *= constant;
    errors[gpu] = own.error();
  }
  return errors;
}

struct Limits {
  double kept_out, left_out;
  double least_inside = 0.85, most_inside = 0.95;
};

void expect_kept_out(const ModelReport& report, const std::map<std::string, double>& roofline,
                     const Limits& limits) {
  int ahead = 0;
  for (const auto& [gpu, times] : by_gpu(report.grouped)) {
    std::printf("%s, %s: %zu rows kept out, mean %.2f %%; roofline x best constant %.1f %%\n",
                report.name.c_str(), gpu.c_str(), times.measured.size(), 100 * times.error(),
                100 * roofline.at(gpu));
    EXPECT_LE(times.error(), limits.kept_out) << gpu;
    ahead += times.error() < roofline.at(gpu);
  }
  EXPECT_EQ(ahead, static_cast<int>(by_gpu(report.grouped).size()));
  std::printf("%s: %.1f %% of kept-out rows inside low..high\n", report.name.c_str(),
              100 * report.grouped.coverage);
  EXPECT_GE(report.grouped.coverage, limits.least_inside);
  EXPECT_LE(report.grouped.coverage, limits.most_inside);
  for (const LeftOut& left : report.left_out) {
    std::printf("%s without %s: %zu rows, learned %.1f %%, heuristic %.1f; %.0f %% inside\n",
                report.name.c_str(), left.gpu.c_str(), left.learned.rows, 100 * left.learned.mape,
                100 * left.heuristic.mape, 100 * left.coverage);
    EXPECT_LE(left.learned.mape, limits.left_out) << left.gpu;
    EXPECT_LT(left.learned.mape, roofline.at(left.gpu)) << left.gpu;
  }
}

TEST(HalfAttention, NewHeadGroupsAndOneGpuLeftOut) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const KernelTable table = silicon("attention.csv.gz");
  const auto roofline = rooflines(table);
  expect_kept_out(fit_table(table, KernelFamily::kAttention), roofline,
                  {.kept_out = 0.06, .left_out = 0.15});
}

TEST(HalfExperts, NewLayersAndOneGpuLeftOut) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const KernelTable table = silicon("moe_bf16.csv.gz");
  const auto roofline = rooflines(table);
  expect_kept_out(fit_table(table, KernelFamily::kExperts), roofline,
                  {.kept_out = 0.20, .left_out = 0.25, .most_inside = 1});  // eleven layers: wide
}

TEST(LinearAttention, NewHeadsAndOneGpuLeftOut) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  KernelTable table = silicon("gated_delta.csv.gz");
  std::erase_if(table.rows, [&](const KernelRow& row) {  // docs/kernel_models.md says why
    return table.gpus[static_cast<std::size_t>(row.gpu)].name == "a100-sxm-80gb";
  });
  const auto roofline = rooflines(table);
  expect_kept_out(fit_table(table, KernelFamily::kLinearAttention), roofline,
                  {.kept_out = 0.07, .left_out = 0.15});
}

// AMD's tuned experts. Most rows of MI308X repeat the time of another number of tokens: of equal
// times in a row, one can be a measurement.
TEST(TunedExperts, RowsThatCanBeMeasurements) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const KernelTable table = silicon("amd_moe.csv.gz");
  std::map<std::pair<int, double>, int> repeats;
  for (const KernelRow& row : table.rows) ++repeats[{row.gpu, row.measured_us}];
  std::map<std::string, Times> times;
  for (const KernelRow& row : table.rows) {
    const Gpu& gpu = table.gpus[static_cast<std::size_t>(row.gpu)];
    const double most = row.work.flop.value / gpu.peak(row.work.dtype, true).value * 1e6;
    if (repeats[{row.gpu, row.measured_us}] > 1 || row.measured_us < most) continue;
    times[gpu.name].measured.push_back(row.measured_us);
    times[gpu.name].predicted.push_back(
        accuracy::learned_models().price(row.work, gpu).time.count());
  }
  for (const auto& [gpu, own] : times) {
    std::printf("%s: %zu rows, mean %.1f %%\n", gpu.c_str(), own.measured.size(),
                100 * own.error());
    EXPECT_LE(own.error(), 0.10) << gpu;
  }
  EXPECT_GE(times["mi308x"].measured.size(), 50U);
  EXPECT_EQ(times["mi300x"].measured.size(), 15U);
}

}  // namespace attention_and_experts_test
}  // namespace perfmodel
