#include "reference/wave_scaling.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "graph_fixture.hpp"

namespace perfmodel {
namespace wave_scaling_test {

using test_support::round_gpu;
using Options = WaveScalingOptions;

/// 1 TB/s, 100 SMs, 1500 MHz, 10 TFLOP/s against 2 TB/s, 50 SMs, 1000 MHz, 5 TFLOP/s.
Gpu other_gpu() {
  Gpu gpu = round_gpu();
  gpu.name = "other";
  gpu.num_sms = 50;
  gpu.boost_clock_mhz = 1000;
  gpu.dram_bandwidth = {2e12};
  gpu.peak_tflop_per_s.fp32 = 5;
  return gpu;
}

KernelWork stream(double bytes, double flop) {
  return {.family = KernelFamily::kElementwise,
          .flop = {flop},
          .bytes_read = {bytes / 2},
          .bytes_written = {bytes / 2},
          .shape = {}};
}

double scaled(const KernelWork& work, const Options& options, const Gpu& from = round_gpu(),
              const Gpu& to = other_gpu()) {
  return scale_by_waves(Microseconds{100}, work, from, to, options).value().time.count();
}

TEST(WaveScaling, MemoryBoundedness) {
  EXPECT_DOUBLE_EQ(memory_boundedness(0, 10), 1);
  EXPECT_DOUBLE_EQ(memory_boundedness(5, 10), 0.75);
  EXPECT_DOUBLE_EQ(memory_boundedness(10, 10), 0.5);
  EXPECT_DOUBLE_EQ(memory_boundedness(40, 10), 0.125);
  EXPECT_DOUBLE_EQ(memory_boundedness(std::numeric_limits<double>::infinity(), 10), 0);
}

TEST(WaveScaling, BlocksPerWave) {
  EXPECT_DOUBLE_EQ(blocks_per_wave(round_gpu(), 128), 1600);  // 2048 / 128 on 100 SMs
  EXPECT_DOUBLE_EQ(blocks_per_wave(round_gpu(), 32), 3200);   // at most 32 blocks an SM
  EXPECT_DOUBLE_EQ(blocks_per_wave(round_gpu(), 4096), 100);
}

TEST(WaveScaling, ManyWavesOfCopiesScaleByBandwidthAlone) {
  for (auto bandwidth : {Options::Bandwidth::kAchieved, Options::Bandwidth::kDatasheet}) {
    EXPECT_NEAR(scaled(stream(1e9, 0), {.form = Options::Form::kManyWaves, .bandwidth = bandwidth}),
                50, 1e-9);
  }
}

TEST(WaveScaling, ClosedFormOfManyWaves) {
  // 2.5 GFLOP over 1 GB: x = 2.5 FLOP/B; ridge 5e12 / 2e12 = 2.5: g = 0.5
  // 100 us x (1/2)^0.5 x (1600 / 800)^0.5 x (1500 / 1000)^0.5
  EXPECT_NEAR(scaled(stream(1e9, 2.5e9), {.form = Options::Form::kManyWaves,
                                          .bandwidth = Options::Bandwidth::kDatasheet}),
              100 * std::sqrt(0.5 * 2 * 1.5), 1e-9);
}

TEST(WaveScaling, ClosedFormOfWaves) {
  // 4000 blocks: ceil(4000 / 800) / ceil(4000 / 1600) = 5 / 3; (1/2 x 800/1600)^0.5 x 1.5^0.5
  EXPECT_NEAR(
      scaled(stream(1e9, 2.5e9), {.bandwidth = Options::Bandwidth::kDatasheet, .blocks = 4000}),
      100 * 5.0 / 3 * std::sqrt(0.25 * 1.5), 1e-9);
  // 256 threads: 400 and 800 blocks a wave, 10 / 5 waves
  EXPECT_NEAR(scaled(stream(1e9, 2.5e9), {.bandwidth = Options::Bandwidth::kDatasheet,
                                          .blocks = 4000,
                                          .threads_per_block = 256}),
              100 * 2.0 * std::sqrt(0.25 * 1.5), 1e-9);
}

TEST(WaveScaling, DefaultBlocksWriteFourFloatsAThread) {
  // 8 MB written: 2e6 floats / 512 = 3907 blocks
  const Options datasheet{.bandwidth = Options::Bandwidth::kDatasheet};
  Options explicit_blocks = datasheet;
  explicit_blocks.blocks = 3907;
  EXPECT_DOUBLE_EQ(scaled(stream(16e6, 0), datasheet), scaled(stream(16e6, 0), explicit_blocks));
}

TEST(WaveScaling, FormsMeetForManyWaves) {
  const KernelWork work = stream(1e12, 1e12);
  EXPECT_NEAR(scaled(work, {}) / scaled(work, {.form = Options::Form::kManyWaves}), 1, 1e-4);
}

TEST(WaveScaling, DispatchStays) {
  // 20 us of dispatch, 80 us of kernel at half the time
  EXPECT_NEAR(scaled(stream(1e9, 0), {.form = Options::Form::kManyWaves, .dispatch_us = 20}),
              20 + 40, 1e-9);
  EXPECT_FALSE(scale_by_waves(Microseconds{20}, stream(1e9, 0), round_gpu(), other_gpu(),
                              {.dispatch_us = 20})
                   .has_value());
}

TEST(WaveScaling, ToItselfChangesNothing) {
  EXPECT_DOUBLE_EQ(scaled(stream(1e6, 3e6), {}, round_gpu(), round_gpu()), 100);
}

TEST(WaveScaling, AchievedBandwidthKnowsTheMemory) {
  Gpu small = other_gpu();
  small.architecture = test_support::architecture("pascal");
  small.dram_type = "GDDR5";  // 0.75 of the data sheet, HBM of round_gpu 0.89
  EXPECT_NEAR(scaled(stream(1e9, 0), {.form = Options::Form::kManyWaves}, round_gpu(), small),
              50 * 0.89 / 0.75, 1e-9);
}

TEST(WaveScaling, AchievedBandwidthOfKnownBoards) {
  // Copies over many waves scale by bandwidth alone, so the result tells the destination's.
  const auto achieved_gb_per_s = [](const char* name) {
    const Gpu gpu =
        find_gpu(name, std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus").value();
    return 0.89 * 1000 * 100 /
           scaled(stream(1e12, 0), {.form = Options::Form::kManyWaves}, round_gpu(), gpu);
  };
  const std::pair<const char*, double> measured[] = {{"a100-pcie-40gb", 1390},
                                                     {"v100-pcie-32gb", 830},
                                                     {"p100-pcie-16gb", 550},
                                                     {"t4", 243},
                                                     {"p4", 145},
                                                     {"mi100", 1020},
                                                     {"mi210", 1380}};
  for (const auto& [name, gb_per_s] : measured) {
    EXPECT_NEAR(achieved_gb_per_s(name) / gb_per_s, 1, 0.02) << name;
  }
  // Not measured: like their nearest relative.
  EXPECT_NEAR(achieved_gb_per_s("h100-sxm-80gb"), 0.89 * 3352, 1);
  EXPECT_NEAR(achieved_gb_per_s("mi250"), 0.84 * 1638.4, 1);
  EXPECT_NEAR(achieved_gb_per_s("l4"), 0.78 * 300, 1);
  EXPECT_NEAR(achieved_gb_per_s("rtx-2080-ti"), 0.80 * 616, 1);
}

TEST(WaveScaling, PriceSaysWhatItIs) {
  const Price price =
      scale_by_waves(Microseconds{100}, stream(1e9, 1e8), round_gpu(), other_gpu()).value();
  EXPECT_EQ(price.model, "wave-scaling");
  EXPECT_EQ(price.bound, Bound::kMeasured);
  EXPECT_TRUE(price.in_range);
  EXPECT_LT(price.low, price.time);
  EXPECT_GT(price.high, price.time);
}

TEST(WaveScaling, LibrariesKernelsAreOutOfRangeWithAReason) {
  for (auto family : {KernelFamily::kGemm, KernelFamily::kConvolution, KernelFamily::kAttention,
                      KernelFamily::kRecurrent, KernelFamily::kEmbeddingForward}) {
    KernelWork work = stream(1e9, 1e9);
    work.family = family;
    const Price price = scale_by_waves(Microseconds{100}, work, round_gpu(), other_gpu()).value();
    EXPECT_FALSE(price.in_range) << to_string(family);
    EXPECT_FALSE(why_waves_mislead(family, round_gpu(), other_gpu()).empty());
  }
  EXPECT_TRUE(why_waves_mislead(KernelFamily::kNorm, round_gpu(), other_gpu()).empty());
  Gpu amd = other_gpu();
  amd.vendor = "amd";
  EXPECT_FALSE(why_waves_mislead(KernelFamily::kNorm, round_gpu(), amd).empty());
}

TEST(WaveScaling, MissingFieldsAreNamed) {
  const auto message = [](void (*spoil)(Gpu&), bool destination) {
    Gpu gpu = other_gpu();
    spoil(gpu);
    const auto result = destination
                            ? scale_by_waves(Microseconds{1}, stream(1e9, 1e9), round_gpu(), gpu)
                            : scale_by_waves(Microseconds{1}, stream(1e9, 1e9), gpu, round_gpu());
    return result ? std::string() : result.error().message;
  };
  for (bool destination : {false, true}) {
    EXPECT_EQ(message([](Gpu& g) { g.boost_clock_mhz = 0; }, destination),
              "wave scaling: expected boost_clock_mhz of GPU other, found none");
    EXPECT_NE(message([](Gpu& g) { g.num_sms = 0; }, destination).find("num_sms"),
              std::string::npos);
    EXPECT_NE(
        message([](Gpu& g) { g.max_threads_per_sm = 0; }, destination).find("max_threads_per_sm"),
        std::string::npos);
    EXPECT_NE(message([](Gpu& g) { g.dram_bandwidth = {0}; }, destination).find("bandwidth"),
              std::string::npos);
  }
  EXPECT_NE(message([](Gpu& g) { g.peak_tflop_per_s = {}; }, true).find("fp32"), std::string::npos);
}

TEST(WaveScaling, LinksAndNonsenseAreRefused) {
  KernelWork copy{.family = KernelFamily::kCopy,
                  .bytes_read = {1e6},
                  .bytes_written = {1e6},
                  .shape = CopyShape{.kind = CopyKind::kHostToDevice}};
  EXPECT_FALSE(scale_by_waves(Microseconds{1}, copy, round_gpu(), other_gpu()).has_value());
  copy.shape = CopyShape{.kind = CopyKind::kDeviceToDevice};
  EXPECT_TRUE(scale_by_waves(Microseconds{1}, copy, round_gpu(), other_gpu()).has_value());
  EXPECT_FALSE(
      scale_by_waves(Microseconds{std::nan("")}, copy, round_gpu(), other_gpu()).has_value());
}

}  // namespace wave_scaling_test
}  // namespace perfmodel
