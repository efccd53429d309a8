#include <gtest/gtest.h>

#include <algorithm>

#include "graph_fixture.hpp"
#include "perfmodel/predictors/kernel.hpp"
#include "price/expert_load.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel {
namespace experts_test {

using Routing = ExpertsShape::Routing;

ExpertsShape layer(std::int64_t tokens, Routing routing, double power_law = 0) {
  return {.kernel = ExpertsLibrary::kTriton,
          .tokens = tokens,
          .hidden = 1024,
          .inter = 512,
          .experts = 64,
          .topk = 4,
          .routing = routing,
          .power_law = power_law};
}

double rows_of(const ExpertLoad& load) {
  double rows = 0;
  for (const LoadClass& c : load.classes) rows += c.experts * c.rows;
  return rows;
}

Gpu gpu_of(const char* architecture) {
  Gpu gpu = test_support::round_gpu();
  gpu.architecture = test_support::architecture(architecture);
  gpu.peak_tflop_per_s.bf16_matrix = 100;
  return gpu;
}

Price priced(const KernelWork& work, const Gpu& gpu) {
  return KernelModels::heuristic().price(work, gpu);
}

TEST(ExpertLoad, BalancedRowsDifferByOne) {
  // 20 tokens x 4 = 80 rows over 64 experts: 48 with one, 16 with two
  const ExpertLoad load = expert_load(layer(20, Routing::kBalanced));
  ASSERT_EQ(load.classes.size(), 2U);
  EXPECT_DOUBLE_EQ(load.classes[0].experts, 48);
  EXPECT_DOUBLE_EQ(load.classes[1].rows, 2);
  EXPECT_DOUBLE_EQ(load.touched, 64);
  EXPECT_DOUBLE_EQ(expert_load(layer(3, Routing::kBalanced)).touched, 12);
}

TEST(ExpertLoad, RandomRoutingLeavesExpertsOut) {
  // (1 - 4 / 64)^8 = 0.597 of the experts get none of 8 tokens
  EXPECT_NEAR(expert_load(layer(8, Routing::kRandom)).touched, 64 * (1 - 0.5967), 0.01);
  EXPECT_NEAR(expert_load(layer(1, Routing::kRandom)).touched, 4, 1e-9);
  EXPECT_NEAR(rows_of(expert_load(layer(4096, Routing::kRandom))), 4096 * 4, 1);
}

TEST(ExpertLoad, PowerLawTouchesFewerAndSomeMuchMore) {
  for (std::int64_t tokens : {4, 16, 64, 1024, 16384}) {
    const ExpertLoad even = expert_load(layer(tokens, Routing::kBalanced));
    const ExpertLoad skewed = expert_load(layer(tokens, Routing::kPowerLaw, 1.2));
    EXPECT_LE(skewed.touched, even.touched * (1 + 1e-9)) << tokens;
    EXPECT_NEAR(rows_of(skewed), tokens * 4, 1e-6 * static_cast<double>(tokens)) << tokens;
  }
  const auto& classes = expert_load(layer(1024, Routing::kPowerLaw, 1.2)).classes;
  EXPECT_GT(classes.back().rows, 4 * 1024.0 * 4 / 64);
}

TEST(ExpertLoad, ImbalanceIsTheLargestGroupOverTheMean) {
  const ExpertLoad load = grouped_load({.groups = 8, .rows = 800, .n = 1, .k = 1, .imbalance = 3});
  EXPECT_DOUBLE_EQ(load.classes.back().rows, 300);
  EXPECT_DOUBLE_EQ(load.classes.front().rows, 500.0 / 7);
  EXPECT_DOUBLE_EQ(rows_of(load), 800);
}

TEST(ExpertsWork, CountsTouchedWeightsOnce) {
  const KernelWork work = experts_work(layer(3, Routing::kBalanced), DType::kBFloat16, true);
  EXPECT_EQ(work.family, KernelFamily::kExperts);
  EXPECT_DOUBLE_EQ(work.flop.value, 6.0 * 3 * 4 * 1024 * 512);
  EXPECT_DOUBLE_EQ(work.bytes_read.value, 2.0 * (3 * 1024 + 3.0 * 12 * 1024 * 512));
  EXPECT_DOUBLE_EQ(work.bytes_written.value, 2.0 * 3 * 1024);

  const KernelWork grouped =
      grouped_gemm_work({.groups = 4, .rows = 2, .n = 8, .k = 16}, DType::kFloat8, true);
  EXPECT_DOUBLE_EQ(grouped.flop.value, 2.0 * 2 * 8 * 16);
  EXPECT_DOUBLE_EQ(grouped.bytes_read.value, 2.0 * 16 + 2 * 8 * 16);  // two of the four matrices
  EXPECT_DOUBLE_EQ(grouped.bytes_written.value, 2.0 * 2 * 8);
}

TEST(ExpertsHeuristic, FewTokensPayForTheWeightsThatTheyTouch) {
  const Gpu gpu = gpu_of("hopper");
  const auto time = [&](std::int64_t tokens) {
    return priced(experts_work(layer(tokens, Routing::kBalanced), DType::kBFloat16, true), gpu)
        .time.count();
  };
  const double launch = gpu.architecture.experts_kernels.front().launch_us;
  EXPECT_NEAR((time(8) - launch) / (time(4) - launch), 2, 0.1);  // 32 experts instead of 16
  EXPECT_NEAR(time(32) / time(16), 1, 0.1);                      // all 64 in both
}

TEST(ExpertsHeuristic, InRangeWhereTheLibraryWasMeasured) {
  const KernelWork work = experts_work(layer(256, Routing::kBalanced), DType::kBFloat16, true);
  EXPECT_TRUE(priced(work, gpu_of("hopper")).in_range);
  EXPECT_FALSE(priced(work, gpu_of("ada")).in_range);    // Ampere's figures
  EXPECT_FALSE(priced(work, gpu_of("volta")).in_range);  // none
  ExpertsShape cutlass = layer(256, Routing::kBalanced);
  cutlass.kernel = ExpertsLibrary::kCutlass;
  EXPECT_FALSE(priced(experts_work(cutlass, DType::kBFloat16, true), gpu_of("ampere")).in_range);
}

TEST(GroupedGemmHeuristic, OneGroupIsNearAPlainProduct) {
  const Gpu gpu = gpu_of("hopper");
  const auto grouped = priced(
      grouped_gemm_work({.groups = 1, .rows = 8192, .n = 8192, .k = 8192}, DType::kBFloat16, true),
      gpu);
  const auto plain = priced(
      gemm_work({.m = 8192, .n = 8192, .k = 8192, .b_transposed = true}, DType::kBFloat16, true),
      gpu);
  EXPECT_NEAR(grouped.time / plain.time, 1.15, 0.35);
  EXPECT_FALSE(grouped.in_range);  // never timed alone
}

TEST(GroupedGemmHeuristic, GrowsWithImbalance) {
  double last = 0;
  for (double imbalance : {1.0, 2.0, 4.0, 8.0}) {
    const auto price =
        priced(grouped_gemm_work(
                   {.groups = 64, .rows = 4096, .n = 4096, .k = 4096, .imbalance = imbalance},
                   DType::kBFloat16, true),
               gpu_of("hopper"));
    EXPECT_GE(price.time.count(), 0.99 * last) << imbalance;
    last = price.time.count();
  }
}

TEST(LinearAttentionWork, ConvolutionMovesQueriesKeysAndValues) {
  const LinearAttentionShape shape{.kernel = LinearAttentionShape::Kernel::kConvolution,
                                   .batch = 2,
                                   .seq = 10,
                                   .k_heads = 1,
                                   .k_dim = 128,
                                   .v_heads = 2,
                                   .v_dim = 128,
                                   .filter = 4};
  const KernelWork work = linear_attention_work(shape, DType::kBFloat16, true);
  EXPECT_DOUBLE_EQ(work.bytes_written.value, 2.0 * 20 * 512);
  EXPECT_DOUBLE_EQ(work.flop.value, 2.0 * 4 * 20 * 512);
  EXPECT_FALSE(work.matrix_units);
}

TEST(LinearAttentionHeuristic, OneSequenceGoesFromChunkToChunk) {
  const Gpu gpu = gpu_of("hopper");
  const auto time = [&](std::int64_t batch, std::int64_t seq) {
    return priced(linear_attention_work({.batch = batch,
                                         .seq = seq,
                                         .k_heads = 2,
                                         .k_dim = 128,
                                         .v_heads = 4,
                                         .v_dim = 128},
                                        DType::kBFloat16, true),
                  gpu)
        .time.count();
  };
  // 64 more chunks of one sequence cannot be faster than their steps one after the other.
  EXPECT_GE(time(1, 8192) - time(1, 4096), 64 * gpu.architecture.linear_attention->chunk_us);
  EXPECT_LT(time(2, 4096), time(1, 8192));  // as many tokens in two sequences
}

}  // namespace experts_test
}  // namespace perfmodel
