#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph_fixture.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel {
namespace kernel_models_test {

using test_support::round_gpu;

double heuristic(const KernelWork& work, const Gpu& gpu = round_gpu()) {
  return KernelModels::heuristic().price(work, gpu).time.count();
}
double roofline(const KernelWork& work, const Gpu& gpu = round_gpu()) {
  return KernelModels::roofline().price(work, gpu).time.count();
}

KernelWork stream(KernelFamily family, double bytes, double flop = 0) {
  return {.family = family,
          .flop = {flop},
          .bytes_read = {bytes / 2},
          .bytes_written = {bytes / 2},
          .shape = {}};
}

KernelWork gemm(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k) {
  const auto b = static_cast<double>(batch), dm = static_cast<double>(m),
             dn = static_cast<double>(n), dk = static_cast<double>(k);
  return {.family = KernelFamily::kGemm,
          .flop = {2 * b * dm * dn * dk},
          .bytes_read = {4 * b * (dm * dk + dk * dn)},
          .bytes_written = {4 * b * dm * dn},
          .shape = GemmShape{.batch = batch, .m = m, .n = n, .k = k}};
}

KernelWork collective(const char* kind, std::int64_t ranks, double bytes) {
  return {.family = KernelFamily::kCollective,
          .bytes_read = {bytes},
          .bytes_written = {bytes},
          .shape = CollectiveShape{.kind = kind, .world_size = ranks}};
}

TEST(Roofline, IsTheLargerOfComputeAndMemory) {
  // 10 TFLOP/s, 1 TB/s: 1e9 FLOP = 100 us, 1e6 B = 1 us
  EXPECT_DOUBLE_EQ(roofline(stream(KernelFamily::kElementwise, 1e6, 1e9)), 100);
  EXPECT_DOUBLE_EQ(roofline(stream(KernelFamily::kElementwise, 1e9, 1e6)), 1000);
  const Price price = KernelModels::roofline().price(gemm(1, 1024, 1024, 1024), round_gpu());
  EXPECT_EQ(price.bound, Bound::kCompute);
  EXPECT_NEAR(price.time.count(), 214.75, 0.01);  // 2 x 1024^3 / 1e13
}

TEST(Roofline, HostCopyGoesOverPcie) {
  KernelWork copy{.family = KernelFamily::kCopy,
                  .bytes_read = {16e6},
                  .bytes_written = {16e6},
                  .shape = CopyShape{.kind = CopyKind::kHostToDevice}};
  EXPECT_DOUBLE_EQ(roofline(copy), 1000);  // 16 MB / 16 GB/s
}

TEST(Heuristic, LargeStreamIsFloorPlusBytesOverReachableBandwidth) {
  // 1 GB / (0.89 x 1 TB/s) = 1123.6 us; floor 2400 cycles / 1500 MHz + 2 x 0.55 = 2.7 us
  const Price price =
      KernelModels::heuristic().price(stream(KernelFamily::kElementwise, 1e9), round_gpu());
  EXPECT_NEAR(price.time.count(), 1e3 / 0.89 + 2.7, 0.01);
  EXPECT_EQ(price.bound, Bound::kMemory);
  EXPECT_EQ(price.model, "elementwise-heuristic");
}

TEST(Heuristic, TinyKernelCostsItsFloor) {
  const Price price =
      KernelModels::heuristic().price(stream(KernelFamily::kElementwise, 64), round_gpu());
  EXPECT_NEAR(price.time.count(), 2.7, 0.01);
  EXPECT_EQ(price.bound, Bound::kLatency);
}

TEST(Heuristic, CacheResidentStreamIsFasterThanDram) {
  // 4 MB of 10 MB cache: all hits at 24 B x 1500 MHz x 100 SMs = 3.6 TB/s
  EXPECT_NEAR(heuristic(stream(KernelFamily::kElementwise, 4e6)), 2.7 + 4e6 / 3.6e6, 0.01);
}

/// Every family at a large size: never faster than the data sheet allows.
TEST(Heuristic, NeverBeatsTheDataSheetOnLargeWork) {
  for (int i = 0; i <= static_cast<int>(KernelFamily::kSmall); ++i) {
    const auto family = static_cast<KernelFamily>(i);
    if (family == KernelFamily::kCollective || family == KernelFamily::kConvolution) continue;
    KernelWork work = stream(family, 1e9, 1e9);
    if (family == KernelFamily::kGemm) work = gemm(1, 4096, 4096, 4096);
    if (family == KernelFamily::kCopy) work.shape = CopyShape{};
    EXPECT_GE(heuristic(work), roofline(work)) << to_string(family);
  }
}

TEST(Heuristic, GemmNeverBeatsPeak) {
  for (std::int64_t size = 8; size <= 8192; size *= 2) {
    for (std::int64_t k : {16, 100, 1024, 16384}) {
      const KernelWork work = gemm(1, size, size, k);
      EXPECT_GE(heuristic(work), work.flop.value / 1e7) << size << " " << k;
    }
  }
}

TEST(Heuristic, GrowsWithBytes) {
  for (auto family : {KernelFamily::kElementwise, KernelFamily::kReduction, KernelFamily::kSoftmax,
                      KernelFamily::kNorm, KernelFamily::kPooling, KernelFamily::kDropout,
                      KernelFamily::kTranspose, KernelFamily::kIndex, KernelFamily::kInteraction,
                      KernelFamily::kAttention, KernelFamily::kRecurrent, KernelFamily::kSort,
                      KernelFamily::kConcat, KernelFamily::kOptimizer, KernelFamily::kCopy,
                      KernelFamily::kSet, KernelFamily::kSmall}) {
    double last = 0;
    for (double bytes = 1; bytes < 1e10; bytes *= 1.7) {
      KernelWork work = stream(family, bytes);
      if (family == KernelFamily::kCopy) work.shape = CopyShape{};
      const double time = heuristic(work);
      EXPECT_GE(time, last) << to_string(family) << " " << bytes;
      last = time;
    }
  }
}

TEST(Heuristic, GemmGrowsWithEachSize) {
  for (int axis = 0; axis < 4; ++axis) {
    double last = 0;
    for (std::int64_t size = 16; size <= 16384; size *= 2) {
      const double time = heuristic(gemm(axis == 3 ? size : 4, axis == 0 ? size : 256,
                                         axis == 1 ? size : 256, axis == 2 ? size : 256));
      EXPECT_GE(time, last) << axis << " " << size;
      last = time;
    }
  }
}

TEST(Heuristic, LargeSquareGemmRunsAtTileEfficiency) {
  // 100 x 128-tiles per side over 100 SMs leave no tail: 0.84 of 10 TFLOP/s on an Ampere GPU
  const KernelWork work = gemm(1, 12800, 12800, 12800);
  EXPECT_NEAR(heuristic(work) / (work.flop.value / (0.84 * 1e7)), 1, 0.001);
}

TEST(Heuristic, OneTileTooManyCostsAWave) {
  // 128 x 128 tiles on 100 SMs: 1280^2 is one block per SM, 1281 columns need a second wave of
  // smaller tiles
  EXPECT_GT(heuristic(gemm(1, 1280, 1281, 4096)), 1.05 * heuristic(gemm(1, 1280, 1280, 4096)));
}

TEST(Heuristic, SplitKHelpsDeepSmallGemms) {
  // 32 x 32 x 65536: one block alone would take 2 x 32 x 32 x 65536 / (0.45 x 0.25 x 1e7 / 100) us
  // = 11.9 ms
  EXPECT_LT(heuristic(gemm(1, 32, 32, 65536)), 1000);
}

TEST(Heuristic, SmallBoardsArePowerLimited) {
  Gpu small = round_gpu();
  small.tdp_w = 40;  // (40 - 15) W / 8 pJ = 3.1 TFLOP/s of 10
  const KernelWork work = gemm(1, 4096, 4096, 4096);
  EXPECT_GT(heuristic(work, small), 2.5 * heuristic(work));
}

TEST(Heuristic, WinogradIsTheOneThatMayBeatDirectConvolution) {
  ConvolutionShape shape{.pass = ConvolutionShape::Pass::kForward,
                         .n = 64,
                         .c = 256,
                         .h = 56,
                         .w = 56,
                         .k = 256,
                         .r = 3,
                         .s = 3,
                         .p = 56,
                         .q = 56};
  const double flop = 2.0 * 64 * 256 * 56 * 56 * 256 * 9;
  KernelWork work{.family = KernelFamily::kConvolution,
                  .flop = {flop},
                  .bytes_read = {4.0 * 64 * 256 * 56 * 56},
                  .bytes_written = {4.0 * 64 * 256 * 56 * 56},
                  .shape = shape};
  EXPECT_LT(heuristic(work), flop / 1e7);
  EXPECT_GT(heuristic(work), flop / 4e7);  // F(4x4) saves 4 x at most
  shape.stride = 2;                        // no Winograd
  shape.p = shape.q = 28;
  work.shape = shape;
  work.flop = {flop / 4};
  EXPECT_GT(heuristic(work), flop / 4 / 1e7);
}

TEST(Heuristic, EmbeddingForwardWithoutReuseIsDramBound) {
  // 2048 bags x 30 rows x 64 x 4 B = 15.73 MB of rows out of a 2.56-GB table, nearly no reuse; plus
  // 32 + 64 + 240 + 256 B a bag = 1.21 MB; rows of 256 B: factor 1.1; 0.89 TB/s. All
  // of it passes through L2 at 3.6 TB/s: 20.8 and 4.7 us add up as squares
  KernelWork bag{
      .family = KernelFamily::kEmbeddingForward,
      .shape = EmbeddingShape{
          .batch = 2048, .num_tables = 1, .num_rows = 1e7, .dim = 64, .pooling_factor = 30}};
  const Price price = KernelModels::heuristic().price(bag, round_gpu());
  EXPECT_EQ(price.bound, Bound::kMemory);
  EXPECT_NEAR(price.memory.count(), std::hypot((1.1 * 15.73 + 1.21) / 0.89, 16.94 / 3.6), 0.05);
}

TEST(Heuristic, SmallEmbeddingTablesHitTheCache) {
  const auto time = [](double rows) {
    return heuristic(
        {.family = KernelFamily::kEmbeddingForward,
         .shape = EmbeddingShape{
             .batch = 4096, .num_tables = 8, .num_rows = rows, .dim = 128, .pooling_factor = 50}});
  };
  EXPECT_LT(time(1000), 0.6 * time(1e7));
  EXPECT_LE(time(1e5), time(1e6));
}

TEST(Heuristic, EmbeddingGrowsWithBatchAndPooling) {
  for (auto family : {KernelFamily::kEmbeddingForward, KernelFamily::kEmbeddingBackward}) {
    double last = 0;
    for (std::int64_t batch = 128; batch <= 1 << 17; batch *= 2) {
      const double time = heuristic(
          {.family = family,
           .shape = EmbeddingShape{
               .batch = batch, .num_tables = 8, .num_rows = 1e6, .dim = 64, .pooling_factor = 20}});
      EXPECT_GT(time, last) << to_string(family) << " " << batch;
      last = time;
    }
  }
}

TEST(Heuristic, PinnedCopyIsFasterThanPageableAndBothSlowerThanPcie) {
  const auto time = [](bool pageable) {
    return heuristic({.family = KernelFamily::kCopy,
                      .bytes_read = {16e6},
                      .bytes_written = {16e6},
                      .shape = CopyShape{.kind = CopyKind::kHostToDevice, .pageable = pageable}});
  };
  EXPECT_NEAR(time(false), 1.5 + 1000 / 0.78, 0.1);
  EXPECT_NEAR(time(true), 1.5 + 1000 / 0.45, 0.1);
}

TEST(Heuristic, LargeAllReduceFollowsTheMeasuredRing) {
  // A100 NVSwitch, n = 8, 1 GiB: published fit 77.1 us + 1.75 S / 227.3 GB/s = 8344 us
  Gpu gpu = round_gpu();
  gpu.link_type = "nvlink";
  gpu.link_bandwidth = {600e9};
  const double size = 1024.0 * 1024 * 1024;
  EXPECT_NEAR(heuristic(collective("all_reduce", 8, size), gpu) / 8344, 1, 0.05);
}

TEST(Heuristic, CollectivesOrderSensibly) {
  Gpu gpu = round_gpu();
  const double pcie = heuristic(collective("all_reduce", 8, 1e8), gpu);
  gpu.link_type = "nvlink";
  gpu.link_bandwidth = {600e9};
  EXPECT_LT(heuristic(collective("all_reduce", 8, 1e8), gpu), pcie);
  EXPECT_LT(heuristic(collective("all_gather", 8, 1e8), gpu),
            heuristic(collective("all_reduce", 8, 1e8), gpu));
  EXPECT_LT(heuristic(collective("all_reduce", 2, 64), gpu),
            heuristic(collective("all_reduce", 8, 64), gpu));
  EXPECT_FALSE(KernelModels::heuristic().price(collective("all_reduce", 0, 1e6), gpu).in_range);
}

TEST(Heuristic, FewSoftmaxRowsLeaveSmsIdle) {
  Gpu gpu = round_gpu();  // its architecture has unmeasured row kernels
  gpu.architecture.norm_row_clocks = 0;
  KernelWork work = stream(KernelFamily::kSoftmax, 1e8);
  work.shape = RowShape{.rows = 10, .cols = 1000};
  const double few = heuristic(work, gpu);
  work.shape = RowShape{.rows = 10000, .cols = 1000};
  EXPECT_GT(few, 4 * heuristic(work, gpu));
}

TEST(Heuristic, LessRegularStreamsAreSlower) {
  // 1 GB / (share x 0.89 x 1 TB/s); floor 1.6 us + 3 x 0.55 us
  const auto expect_share = [](KernelFamily family, double share) {
    EXPECT_NEAR(heuristic(stream(family, 1e9)), 1e3 / (share * 0.89) + 3.25, 0.01)
        << to_string(family);
  };
  expect_share(KernelFamily::kDropout, 0.9);
  expect_share(KernelFamily::kTranspose, 0.8);
  expect_share(KernelFamily::kInteraction, 0.6);
}

AttentionShape attention(std::int64_t heads, std::int64_t seq, std::int64_t head_dim = 128) {
  return {.batch = 1, .heads = heads, .seq_q = seq, .seq_k = seq, .head_dim = head_dim};
}

/// A GPU whose architecture has unmeasured attention kernels.
Gpu gpu_without_attention_kernels() {
  Gpu gpu = round_gpu();
  gpu.architecture.attention_kernels = {};
  return gpu;
}

TEST(Heuristic, FlashAttentionRunsInWavesOfBlocks) {
  // One block of 128 rows per SM: 4 x 128 x 128 x 128 FLOP at 0.68 of 100 TFLOP/s / 100 SMs
  const double wave = 4.0 * 128 * 128 * 128 / (0.68 * 1e6), floor = 1.6 + 4 * 0.55 + 2;
  const auto time = [](std::int64_t heads, std::int64_t seq) {
    return heuristic(attention_work(attention(heads, seq), DType::kFloat16, true),
                     gpu_without_attention_kernels());
  };
  EXPECT_NEAR(time(1, 128), floor + wave, 0.01);
  EXPECT_NEAR(time(100, 128), floor + wave, 0.01);
  EXPECT_NEAR(time(101, 128), floor + 2 * wave, 0.01);
  EXPECT_NEAR(time(100, 129), floor + 2 * 2 * wave, 0.01);  // two tiles of q by two of k
}

TEST(Heuristic, SmallHeadsAndVectorUnitsReachLessOfThePeak) {
  Gpu gpu = gpu_without_attention_kernels();
  const auto share = [&](const AttentionShape& shape, DType dtype, bool matrix) {
    const KernelWork work = attention_work(shape, dtype, matrix);
    return work.flop.value / heuristic(work, gpu) / (gpu.peak(dtype, matrix).value * 1e-6);
  };
  constexpr DType kHalf = DType::kFloat16;
  EXPECT_NEAR(share(attention(1000, 4096, 128), kHalf, true), 0.68, 0.01);
  EXPECT_NEAR(share(attention(1000, 4096, 64), kHalf, true), 0.68 * 0.85, 0.01);
  EXPECT_NEAR(share(attention(1000, 4096, 32), kHalf, true), 0.68 * 0.6, 0.01);
  EXPECT_NEAR(share(attention(1000, 4096, 256), kHalf, true), 0.68 * 0.8, 0.01);
  // Three products in TF32 for one in fp32, where there are units for them.
  EXPECT_NEAR(share(attention(1000, 4096, 128), DType::kFloat32, false), 0.65, 0.01);
  gpu.peak_tflop_per_s.tf32_matrix.reset();
  EXPECT_NEAR(share(attention(1000, 4096, 128), DType::kFloat32, false), 0.40, 0.01);
}

TEST(Heuristic, MeasuredAttentionKernelsAreThoseOfMatrixUnits) {
  const KernelWork fp32 = attention_work(attention(16, 4096), DType::kFloat32, false);
  EXPECT_EQ(heuristic(fp32), heuristic(fp32, gpu_without_attention_kernels()));
  const KernelWork fp16 = attention_work(attention(16, 4096), DType::kFloat16, true);
  EXPECT_NE(heuristic(fp16), heuristic(fp16, gpu_without_attention_kernels()));
}

TEST(Heuristic, AttentionNeverBeatsPeakAndGrows) {
  using A = AttentionShape;
  for (auto method : {A::Method::kFlash, A::Method::kMath}) {
    for (auto pass : {A::Pass::kForward, A::Pass::kBackward}) {
      for (int axis = 0; axis < 4; ++axis) {
        double last = 0;
        for (std::int64_t size = 16; size <= 4096; size *= 2) {
          const AttentionShape shape{.method = method,
                                     .pass = pass,
                                     .batch = axis == 0 ? size : 2,
                                     .heads = 8,
                                     .seq_q = axis == 1 ? size : 256,
                                     .seq_k = axis == 2 ? size : 256,
                                     .head_dim = axis == 3 ? std::min<std::int64_t>(size, 256) : 64,
                                     .causal = false};
          const KernelWork work = attention_work(shape, DType::kFloat16, true);
          EXPECT_GE(heuristic(work), work.flop.value / 1e8) << axis << " " << size;
          EXPECT_GE(heuristic(work), 0.95 * last) << axis << " " << size;  // head sizes have steps
          last = heuristic(work);
        }
      }
    }
  }
}

TEST(Heuristic, FlashBeatsMathOnLongSequences) {
  AttentionShape shape = attention(16, 4096, 64);
  const double flash = heuristic(attention_work(shape, DType::kFloat16, true));
  shape.causal = true;
  EXPECT_LT(heuristic(attention_work(shape, DType::kFloat16, true)), 0.6 * flash);
  shape.causal = false;
  shape.method = AttentionShape::Method::kMath;
  EXPECT_GT(heuristic(attention_work(shape, DType::kFloat16, true)), 2 * flash);
}

TEST(Heuristic, MathAttentionIsTheSumOfItsKernels) {
  AttentionShape shape = attention(4, 512, 64);
  shape.method = AttentionShape::Method::kMath;
  const KernelWork scaling = elementwise_work(4 * 512 * 64, 1, 1, DType::kFloat32);
  EXPECT_NEAR(heuristic(attention_work(shape, DType::kFloat32, false)),
              2 * heuristic(scaling) + heuristic(gemm(4, 512, 512, 64)) +
                  heuristic(softmax_work(4 * 512, 512, RowPass::kForward, DType::kFloat32)) +
                  heuristic(gemm(4, 512, 64, 512)),
              1e-6);
}

/// With the libraries of DeepBench.
Gpu gpu_of_deepbench() {
  Gpu gpu = round_gpu();
  gpu.architecture.recurrent_cycles.reset();
  return gpu;
}

double recurrent(const RecurrentShape& shape, const Gpu& gpu = gpu_of_deepbench()) {
  return heuristic(recurrent_work(shape, DType::kFloat32), gpu);
}

TEST(Heuristic, RecurrentStepsAddUp) {
  // H 2048, B 64: 2 x 4 x 2048^2 x 64 FLOP at 0.755 of 10 TFLOP/s after 82 x 2048 cycles at 1.5
  // GHz, in parallel with 67.1 MB at 0.678 of 0.89 TB/s; 59500 cycles of the cell; per step. An
  // empty kernel is 1.6 us.
  const RecurrentShape one{.hidden = 2048, .batch = 64, .timesteps = 1};
  const double sums = 2147483648.0 / 7.55e6 + 82 * 2048.0 / 1500;
  const double weights = 67108864.0 / (0.678 * 0.89e6);
  const double step = 59500.0 / 1500 + std::max(sums, weights);
  EXPECT_NEAR(recurrent(one), 1.6 + step, 0.01);
  RecurrentShape many = one;
  many.timesteps = 50;
  EXPECT_NEAR(recurrent(many), 1.6 + 50 * step, 0.5);
}

TEST(Heuristic, RecurrentStepsAreTheArchitecturesWhereItHasOwn) {
  // H 512, B 128 on 100 SMs of 1.5 GHz and 10 TFLOP/s, cuDNN's cycles on Hopper. Forward 64 tiles
  // of 64 x 64 walk 512 elements, 28 cycles and 2 x 64 x 64 FLOP each; backward 16 tiles in 6.25
  // parts walk 2048 / 6.25, 50 cycles and the same FLOP each. 12,500 and 18,900 cycles are added to
  // the product.
  Gpu hopper = round_gpu();
  hopper.architecture = test_support::architecture("hopper");
  RecurrentShape shape{.hidden = 512, .batch = 128, .timesteps = 35};
  const double sums = 8192 / 1e5;
  const double step = 512 * (28.0 / 1500 + sums) + 12500.0 / 1500;
  EXPECT_NEAR(recurrent(shape, hopper), 1.6 + 35 * step, 0.1);
  shape.pass = RecurrentShape::Pass::kBackwardData;
  const double back = 2048.0 / 6.25 * (50.0 / 1500 + sums) + 18900.0 / 1500;
  EXPECT_NEAR(recurrent(shape, hopper), 1.6 + 35 * back, 0.1);
  shape.pass = RecurrentShape::Pass::kForward;
  const auto price = [&](const Gpu& gpu) {
    return KernelModels::heuristic().price(recurrent_work(shape, DType::kFloat32), gpu);
  };
  // Not measured on Ampere: as on Hopper, but the range reaches to DeepBench's libraries.
  EXPECT_DOUBLE_EQ(price(round_gpu()).time.count(), price(hopper).time.count());
  EXPECT_GE(price(round_gpu()).high.count(), recurrent(shape));
  EXPECT_FALSE(price(round_gpu()).in_range);
}

TEST(Heuristic, LayersOfTodaysLibrariesLieSideBySide) {
  Gpu hopper = round_gpu();
  hopper.architecture = test_support::architecture("hopper");
  // Large products (51.5 us each) fill the SMs one after the other, and 0.42 of the other 8.33 us
  // is kernels; other layers hide the rest.
  RecurrentShape four{.hidden = 512, .batch = 128, .timesteps = 35, .layers = 4};
  const double walk = 512 * (28.0 / 1500 + 8192 / 1e5);
  EXPECT_NEAR(recurrent(four, hopper), 1.6 + 140 * (walk + 0.42 * 12500 / 1500), 0.5);
  // With small products (10.8 us a step) one thread starts two kernels in 17.4 us: none overlap.
  RecurrentShape small{.hidden = 64, .batch = 8, .timesteps = 100};
  const double one = recurrent(small, hopper) - 1.6;
  small.layers = 4;
  EXPECT_NEAR(recurrent(small, hopper), 1.6 + 4 * one, 0.01);
}

TEST(Heuristic, LayersOfAWavefrontShareTheirPath) {
  // Few sums: 4 layers of 100 steps take 103 steps in place of 400. Many: all sums one by one.
  RecurrentShape one{.hidden = 256, .batch = 8, .timesteps = 100}, four = one;
  four.layers = 4;
  const double step = (recurrent(one) - 1.6) / 100;
  EXPECT_NEAR(recurrent(four), 1.6 + 103 * step, 0.01);
  one.batch = four.batch = 1 << 14;
  EXPECT_GT(recurrent(four), 3.5 * recurrent(one));
  EXPECT_LE(recurrent(four), 4 * recurrent(one));
}

TEST(Heuristic, PersistentLayersReadTheirWeightsOnce) {
  RecurrentShape shape{.hidden = 512, .batch = 8, .timesteps = 100};
  const double plain = recurrent(shape);
  shape.persistent = true;
  // A barrier of 1.4 us and 2 x 4 x 512^2 x 8 FLOP at 0.755 of the peak.
  EXPECT_NEAR(recurrent(shape), 1.6 + 100 * (1.4 + 16777216.0 / 7.55e6), 0.1);
  EXPECT_LT(recurrent(shape), plain);
}

TEST(Heuristic, RecurrentWeightsInCacheAreReadFaster) {
  // Plain cell, no other floor than its depth. 1024: 4.19 MB lie in half of 10 MB, 3.6 TB/s; 4096:
  // 67 MB do not
  const auto memory = [](std::int64_t hidden) {
    const RecurrentShape shape{
        .cell = RecurrentShape::Cell::kPlain, .hidden = hidden, .batch = 8, .timesteps = 1};
    return KernelModels::heuristic()
        .price(recurrent_work(shape, DType::kFloat32), round_gpu())
        .memory.count();
  };
  EXPECT_NEAR(memory(1024), 4.0 * 1024 * 1024 / (0.678 * 3.6e6), 1e-6);
  EXPECT_NEAR(memory(4096), 4.0 * 4096 * 4096 / (0.678 * 0.89e6), 1e-6);
}

TEST(Heuristic, RecurrentBackwardIsDataAndWeights) {
  using Pass = RecurrentShape::Pass;
  const auto time = [](Pass pass) {
    return recurrent({.pass = pass, .hidden = 1024, .batch = 64, .timesteps = 25});
  };
  EXPECT_NEAR(time(Pass::kBackward), time(Pass::kBackwardData) + time(Pass::kBackwardWeights),
              1e-6);
}

TEST(Heuristic, PascalBatchesOf17To32TakeASlowBackwardKernel) {
  Gpu pascal = round_gpu();
  pascal.architecture = test_support::architecture("pascal");
  const auto time = [&](std::int64_t batch, const Gpu& gpu) {
    return recurrent({.pass = RecurrentShape::Pass::kBackwardData,
                      .hidden = 1024,
                      .batch = batch,
                      .timesteps = 25},
                     gpu);
  };
  EXPECT_GT(time(17, pascal), 1.5 * time(16, pascal));
  EXPECT_GT(time(32, pascal), 1.5 * time(33, pascal));
  EXPECT_LT(time(17, round_gpu()), 1.1 * time(16, round_gpu()));
}

TEST(Heuristic, RecurrentNeverBeatsPeakAndGrows) {
  using R = RecurrentShape;
  for (auto cell : {R::Cell::kPlain, R::Cell::kGru, R::Cell::kLstm}) {
    for (auto pass : {R::Pass::kForward, R::Pass::kBackward, R::Pass::kBackwardData,
                      R::Pass::kBackwardWeights}) {
      for (const char* vendor : {"nvidia", "amd"}) {
        Gpu gpu = round_gpu();
        gpu.vendor = vendor;
        for (int axis = 0; axis < 3; ++axis) {
          double last = 0;
          for (std::int64_t size = 8; size <= 4096; size *= 2) {
            const KernelWork work = recurrent_work({.cell = cell,
                                                    .pass = pass,
                                                    .hidden = axis == 0 ? size : 512,
                                                    .batch = axis == 1 ? size : 32,
                                                    .timesteps = axis == 2 ? size : 25},
                                                   DType::kFloat32);
            const double time = heuristic(work, gpu);
            EXPECT_GE(time, work.flop.value / 1e7) << axis << " " << size;
            EXPECT_GE(time, last) << axis << " " << size;
            last = time;
          }
        }
      }
    }
  }
}

TEST(Heuristic, RecurrentIsInRangeOnlyOnTheGenerationsOfItsData) {
  Gpu gpu = round_gpu();
  const auto in_range = [&](std::int64_t hidden) {
    return KernelModels::heuristic()
        .price(recurrent_work({.hidden = hidden, .batch = 32, .timesteps = 25}, DType::kFloat32),
               gpu)
        .in_range;
  };
  EXPECT_FALSE(in_range(512));  // ampere
  gpu.architecture = test_support::architecture("pascal");
  EXPECT_TRUE(in_range(256));
  EXPECT_FALSE(in_range(255));
  EXPECT_TRUE(in_range(4096));
  EXPECT_FALSE(in_range(4097));
}

TEST(Heuristic, RangeHoldsTheExpectedTime) {
  for (const KernelWork& work :
       {gemm(1, 64, 64, 64), gemm(1, 4096, 4096, 4096), stream(KernelFamily::kElementwise, 100),
        collective("broadcast", 4, 1e6)}) {
    const Price price = KernelModels::heuristic().price(work, round_gpu());
    EXPECT_LT(price.low, price.time);
    EXPECT_GT(price.high, price.time);
    EXPECT_GT(price.low.count(), 0);
    EXPECT_TRUE(std::isfinite(price.high.count()));
  }
}

TEST(Heuristic, HalfPrecisionGemmIsCheckedWhereItWasMeasured) {
  KernelWork work = gemm(1, 1024, 1024, 1024);
  EXPECT_TRUE(KernelModels::heuristic().price(work, round_gpu()).in_range);
  work.dtype = DType::kFloat16;
  work.matrix_units = true;
  Gpu gpu = round_gpu();
  EXPECT_TRUE(KernelModels::heuristic().price(work, gpu).in_range);
  gpu.architecture.matrix_gemm.reset();
  EXPECT_FALSE(KernelModels::heuristic().price(work, gpu).in_range);
}

TEST(KernelModels, OneFamilyCanBeReplaced) {
  KernelModels models = KernelModels::heuristic();
  models.set(KernelFamily::kGemm, &KernelModels::roofline().model(KernelFamily::kGemm));
  EXPECT_EQ(models.price(gemm(1, 64, 64, 64), round_gpu()).model, "roofline");
  EXPECT_EQ(models.price(stream(KernelFamily::kSort, 8), round_gpu()).model, "sort-heuristic");
}

TEST(KernelFamilyOfName, RecordedNamesTell) {
  const std::pair<const char*, KernelFamily> cases[] = {
      {"volta_sgemm_128x64_nn", KernelFamily::kGemm},
      {"Cijk_Ailk_Bljk_SB_MT64x64x8", KernelFamily::kGemm},
      {"void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64>", KernelFamily::kGemm},
      {"cudnn_volta_scudnn_winograd_128x128_ldg1_ldg4_relu", KernelFamily::kConvolution},
      {"void cudnn::bn_bw_1C11_kernel_new<float>", KernelFamily::kNorm},
      {"void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor>",
       KernelFamily::kElementwise},
      {"void at::native::reduce_kernel<512, 1>", KernelFamily::kReduction},
      {"ncclDevKernel_AllReduce_Sum_f32_RING_LL", KernelFamily::kCollective},
      {"split_embedding_codegen_forward_unweighted_kernel", KernelFamily::kEmbeddingForward},
      {"void (anonymous)::softmax_warp_forward<float>", KernelFamily::kSoftmax}};
  for (const auto& [name, family] : cases) {
    EXPECT_EQ(kernel_family_of_name(name), family) << name;
  }
  EXPECT_EQ(kernel_family_of_name("split_embedding_backward_codegen_rowwise_adagrad_kernel"),
            KernelFamily::kEmbeddingBackward);
  EXPECT_EQ(kernel_family_of_name("void fbgemm_gpu::permute_2D_lengths_kernel<int>"), std::nullopt);
  EXPECT_EQ(kernel_family_of_name("my_kernel"), std::nullopt);
}

// Most of these names hold a word of another family: "cutlass", "conv", "softmax", "reduce".
TEST(KernelFamilyOfName, FusedAttentionIsNoProduct) {
  for (const char* name :
       {"fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>)",
        "fmha_cutlassB_f32_aligned_64x64_k64_dropout_sm80",
        "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, cutlass::bfloat16_t>>",
        "void pytorch_flash::flash_fwd_splitkv_kernel<cutlass::half_t>",
        "void pytorch_flash::flash_bwd_dot_do_o_kernel<true, cutlass::bfloat16_t>",
        "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<cutlass::half_t>",
        "void pytorch_flash::flash_bwd_convert_dq_kernel<cutlass::half_t>",
        "void cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnFwdSm90<cutlass::half_t>>>",
        "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::tuple<cute::C<128>>>>",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1",
        "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_26_64x64x64_1x4x1",
        "void cudnn::fusion::compute_dot_do_o_specialized<true, 64>(void const*)",
        "void cudnn::fusion::convert_dq_to_16bits<true>(void const*)",
        "fmha_v2_flash_attention_fp16_S_q_kv_64_sm80_kernel",
        "fmha_fwd_loop_kernel<cutlass::half_t>",
        "void ck_tile::kentry<256, 2, ck_tile::FmhaBwdConvertQGradKernel<>>",
        "attn_fwd.kd",
        "bwd_kernel_dk_dv.kd",
        "_attn_bwd_preprocess",
        "triton_tem_fused_flex_attention_3",
        "void flashinfer::SinglePrefillWithKVCacheKernel<cutlass::half_t>"}) {
    EXPECT_EQ(kernel_family_of_name(name), KernelFamily::kAttention) << name;
  }
  EXPECT_EQ(kernel_family_of_name("triton_poi_fused__scaled_dot_product_flash_attention_fmha_0"),
            KernelFamily::kElementwise);
}

}  // namespace kernel_models_test
}  // namespace perfmodel
