// Layers in fp8 (a scale per token, per block of 128) and fp4 of H100, B200, GB200 and RTX PRO 6000
// with what is shipped: the kernel that quantises and the product. Figures of architectures and
// trees were fitted on these very tables; `ScaledGemmFits.*` has new weights and new GPUs.
#include <cstdio>
#include <map>

#include "base/accuracy.hpp"
#include "scaled_tables.hpp"

namespace perfmodel {
namespace scaled_gemm_test {

struct Times {
  std::vector<double> measured, heuristic, learned, roofline;
  int inside = 0, in_range = 0;
};

std::map<std::string, Times> times_by_gpu(const KernelTable& table) {
  std::map<std::string, Times> all;
  for (const KernelRow& row : table.rows) {
    const Gpu& gpu = table.gpus[static_cast<std::size_t>(row.gpu)];
    Times& own = all[gpu.name];
    const Price price = accuracy::learned_models().price(row.work, gpu);
    own.measured.push_back(row.measured_us);
    own.learned.push_back(price.time.count());
    own.heuristic.push_back(KernelModels::heuristic().price(row.work, gpu).time.count());
    own.roofline.push_back(KernelModels::roofline().price(row.work, gpu).time.count());
    own.inside += row.measured_us >= price.low.count() && row.measured_us <= price.high.count();
    own.in_range += price.in_range;
  }
  return all;
}

double error_of(const Times& times, const std::vector<double>& predicted) {
  return summarize_errors(times.measured, predicted)->mape;
}

/// The bound that no constant beats.
double roofline_error(const Times& times) {
  const double ratio = best_constant_ratio(times.roofline, times.measured).value();
  std::vector<double> scaled = times.roofline;
  for (double& us : scaled) us *= ratio;
  return error_of(times, scaled);
}

void expect_within(const KernelTable& table, double heuristic_limit, double learned_limit) {
  for (const auto& [gpu, times] : times_by_gpu(table)) {
    const auto rows = static_cast<double>(times.measured.size());
    const double heuristic = error_of(times, times.heuristic),
                 learned = error_of(times, times.learned), roofline = roofline_error(times);
    std::printf(
        "%-20s %6.0f rows: heuristic %5.2f %%, learned %5.2f %%, roofline x best constant %5.2f "
        "%%; %4.1f %% inside low..high\n",
        gpu.c_str(), rows, 100 * heuristic, 100 * learned, 100 * roofline,
        100 * times.inside / rows);
    EXPECT_LE(heuristic, heuristic_limit) << gpu;
    EXPECT_LE(learned, learned_limit) << gpu;
    EXPECT_LT(heuristic, roofline) << gpu;
    EXPECT_GE(times.inside / rows, 0.83) << gpu;
    EXPECT_GE(times.in_range / rows, 0.99) << gpu;
  }
}

TEST(SiliconTimes, Fp8LayersPerToken) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  expect_within(accuracy::layers_of("gemm_fp8_token.csv.gz", Scaling::kToken), 0.13, 0.08);
}

TEST(SiliconTimes, Fp8LayersPerBlock) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  expect_within(accuracy::layers_of("gemm_fp8_block.csv.gz", Scaling::kBlock), 0.13, 0.08);
}

TEST(SiliconTimes, Fp4Layers) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  expect_within(accuracy::layers_of("gemm_nvfp4.csv.gz", Scaling::kBlock), 0.12, 0.08);
}

/// Error on one GPU's rows, with the figures of another architecture.
double error_with(const KernelTable& table, const char* gpu_name, const char* architecture) {
  const auto data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";
  Gpu gpu = accuracy::gpu(gpu_name);
  gpu.architecture = find_architecture(architecture, data / "architectures").value();
  Times times;
  for (const KernelRow& row : table.rows) {
    if (table.gpus[static_cast<std::size_t>(row.gpu)].name != gpu.name) continue;
    times.measured.push_back(row.measured_us);
    times.heuristic.push_back(KernelModels::heuristic().price(row.work, gpu).time.count());
  }
  const double error = error_of(times, times.heuristic);
  std::printf("%-20s as %s: heuristic %5.2f %%\n", gpu_name, architecture, 100 * error);
  return error;
}

// Error on a new architecture with the figures of its nearest relative. Figures of blocks do not
// carry over: on Blackwell two kernels take 14 us whatever their work.
TEST(SiliconTimes, ScaledLayersWithARelativesFigures) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const KernelTable token = accuracy::layers_of("gemm_fp8_token.csv.gz", Scaling::kToken);
  EXPECT_LE(error_with(token, "rtx-pro-6000-server", "blackwell"), 0.25);
  EXPECT_LE(error_with(token, "h100-sxm-80gb", "blackwell"), 0.25);
  EXPECT_LE(error_with(token, "b200-sxm-180gb", "hopper"), 0.30);
  const KernelTable fp4 = accuracy::layers_of("gemm_nvfp4.csv.gz", Scaling::kBlock);
  EXPECT_LE(error_with(fp4, "rtx-pro-6000-server", "blackwell"), 0.25);
  const KernelTable block = accuracy::layers_of("gemm_fp8_block.csv.gz", Scaling::kBlock);
  EXPECT_GE(error_with(block, "h100-sxm-80gb", "blackwell"), 0.50);
}

TEST(SiliconTimes, Fp8Conversions) {
  if (!accuracy::public_data()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  const auto gpus = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";
  const KernelTable table =
      read_kernel_table(*accuracy::public_data() / "silicon" / "quantize_fp8.csv.gz",
                        {.gpu_folder = gpus, .needs_time = true})
          .value();
  for (const auto& [gpu, times] : times_by_gpu(table)) {
    const double error = error_of(times, times.heuristic), roofline = roofline_error(times);
    std::printf("%-20s heuristic %5.2f %%, roofline x best constant %5.2f %%\n", gpu.c_str(),
                100 * error, 100 * roofline);
    EXPECT_LE(error, 0.08) << gpu;
    EXPECT_LT(error, roofline) << gpu;
  }
}

}  // namespace scaled_gemm_test
}  // namespace perfmodel
