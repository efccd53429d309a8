#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "perfmodel/predictors/gpu.hpp"
#include "price/kernel_work.hpp"

namespace perfmodel {
namespace attention_kernels_test {

using Generation = AttentionGeneration;

Gpu known_gpu(const char* name) {
  const auto gpu = find_gpu(name, std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus");
  EXPECT_TRUE(gpu.has_value()) << to_string(gpu.error());
  return *gpu;
}

/// As the tables of measurements have them: dense kernels without a mask, paged ones causal.
AttentionShape dense(Generation kernel, std::int64_t heads, std::int64_t seq, std::int64_t d) {
  return {.batch = 1,
          .heads = heads,
          .seq_q = seq,
          .seq_k = seq,
          .head_dim = d,
          .kv_heads = heads,
          .kernel = kernel};
}
AttentionShape paged(Generation kernel, std::int64_t batch, std::int64_t heads,
                     std::int64_t kv_heads, std::int64_t seq, std::int64_t d) {
  return {.batch = batch,
          .heads = heads,
          .seq_q = seq,
          .seq_k = seq,
          .head_dim = d,
          .causal = true,
          .kv_heads = kv_heads,
          .writes_cache = true,
          .kernel = kernel};
}

Price price_of_shape(const Gpu& gpu, const AttentionShape& shape, DType dtype = DType::kBFloat16) {
  return KernelModels::heuristic().price(attention_work(shape, dtype, true), gpu);
}
double us_of_shape(const Gpu& gpu, const AttentionShape& shape) {
  return price_of_shape(gpu, shape).time.count();
}

TEST(AttentionKernels, AreTheFormulaAsWrittenDownElsewhere) {
  // By another implementation of the same equations, in Python, which counts no log-sums.
  struct Case {
    const char* gpu;
    AttentionShape shape;
    double us;
  };
  using G = Generation;
  const Case cases[] = {
      {"rtx-pro-6000-server", dense(G::kFa2, 12, 1024, 64), 23.1091},
      {"rtx-pro-6000-server", dense(G::kFa2, 24, 4096, 72), 528.2959},
      {"rtx-pro-6000-server", paged(G::kFa2, 2, 32, 8, 1024, 192), 138.5589},
      {"a100-sxm-80gb", paged(G::kFa2, 4, 32, 8, 2048, 128), 1001.4967},
      {"a100-sxm-80gb", paged(G::kFa2, 1, 4, 1, 16, 128), 12.1113},
      {"h100-sxm-80gb", dense(G::kFa3, 1, 8192, 64), 53.4108},  // splits keys
      {"h100-sxm-80gb", dense(G::kFa3, 24, 16384, 64), 3168.9992},
      {"h100-sxm-80gb", paged(G::kFa3, 128, 32, 8, 16, 64), 46.8999},  // packs heads
      {"h100-sxm-80gb", paged(G::kFa3, 4, 32, 8, 4096, 128), 1052.6498},
      {"h100-sxm-80gb", paged(G::kFa4, 2, 16, 4, 1024, 512), 197.7316},
      {"b200-sxm-180gb", dense(G::kFa4, 2, 12288, 64), 103.1930},
      {"gb200", dense(G::kFa4, 24, 65536, 64), 25268.7730},
      {"b200-sxm-180gb", paged(G::kTrtllm, 8, 32, 8, 2048, 128), 372.1307},
      {"gb200", paged(G::kTrtllm, 1, 64, 8, 512, 256), 32.0329},
  };
  for (const Case& c : cases) {
    KernelWork work = attention_work(c.shape, DType::kBFloat16, true);
    work.bytes_written.value -= 4.0 * static_cast<double>(c.shape.batch * c.shape.heads) *
                                static_cast<double>(c.shape.seq_q);
    const Price price = KernelModels::heuristic().price(work, known_gpu(c.gpu));
    EXPECT_NEAR(price.time.count(), c.us, 1e-4 * c.us) << c.gpu << " " << c.us;
    EXPECT_TRUE(price.in_range) << c.gpu << " " << c.us;
    EXPECT_DOUBLE_EQ(price.time.count(), (price.compute + price.memory + price.latency).count());
  }
}

TEST(AttentionKernels, NoneBeatsMemory) {
  // Short sequences of many heads: 6 % of the traffic are exposed, but the products are few.
  const Gpu gpu = known_gpu("rtx-pro-6000-server");
  const AttentionShape shape = dense(Generation::kFa2, 4096, 128, 64);
  const KernelWork work = attention_work(shape, DType::kBFloat16, true);
  const Price price = KernelModels::heuristic().price(work, gpu);
  EXPECT_GT(price.time.count(), work.bytes().value / (gpu.dram_bandwidth.value * 1e-6));
  EXPECT_EQ(price.bound, Bound::kMemory);
}

TEST(AttentionKernels, OneTileTooManyIsAWaveOfADenseKernel) {
  // Blocks of 128 rows on 188 SMs
  const Gpu gpu = known_gpu("rtx-pro-6000-server");
  const auto compute = [&](std::int64_t heads) {
    return price_of_shape(gpu, dense(Generation::kFa2, heads, 128, 64)).compute.count();
  };
  EXPECT_DOUBLE_EQ(compute(188), compute(1));
  EXPECT_DOUBLE_EQ(compute(189), 2 * 0.9 * compute(1));  // alone a block reaches 0.9 of its speed
}

TEST(AttentionKernels, AMaskSavesNearlyHalfOfLongSequences) {
  const Gpu gpu = known_gpu("a100-sxm-80gb");
  AttentionShape shape = paged(Generation::kFa2, 8, 32, 8, 8192, 128);
  const double causal = us_of_shape(gpu, shape);
  shape.causal = false;
  EXPECT_NEAR(causal / us_of_shape(gpu, shape), 0.5, 0.03);
  // One tile holds all rows of q: nothing to skip.
  shape.batch = 1;
  shape.seq_q = shape.seq_k = 64;
  const double full = price_of_shape(gpu, shape).compute.count();
  shape.causal = true;
  EXPECT_DOUBLE_EQ(price_of_shape(gpu, shape).compute.count(), full);
}

TEST(AttentionKernels, FewBlocksSplitTheirKeys) {
  // One head of 8192 on H100: 43 blocks of 192 rows for 132 SMs
  Gpu gpu = known_gpu("h100-sxm-80gb");
  const AttentionShape shape = dense(Generation::kFa3, 1, 8192, 64);
  const Price split = price_of_shape(gpu, shape);
  EXPECT_NEAR(split.latency.count(), 5.6 + 5.3, 1e-9);
  for (AttentionKernel& kernel : gpu.architecture.attention_kernels.list) kernel.split_us = 0;
  const Price whole = price_of_shape(gpu, shape);
  EXPECT_NEAR(whole.latency.count(), 5.6, 1e-9);
  EXPECT_GT(whole.compute.count(), 2 * split.compute.count());
}

TEST(AttentionKernels, HeadsThatShareKeysFillATile) {
  // 16 tokens in tiles of 192 rows: four heads of q in one instead of four
  Gpu gpu = known_gpu("h100-sxm-80gb");
  const AttentionShape shape = paged(Generation::kFa3, 128, 32, 8, 16, 64);
  const double packed = price_of_shape(gpu, shape).compute.count();
  for (AttentionKernel& kernel : gpu.architecture.attention_kernels.list) kernel.pack_gqa = false;
  EXPECT_GT(price_of_shape(gpu, shape).compute.count(), 2 * packed);
}

TEST(AttentionKernels, WritingTheCacheMovesKeysAndValuesOnceMore) {
  AttentionShape shape = paged(Generation::kFa2, 2, 8, 2, 128, 64);
  const KernelWork with = attention_work(shape, DType::kBFloat16, true);
  shape.writes_cache = false;
  const KernelWork without = attention_work(shape, DType::kBFloat16, true);
  const double k = 2.0 * 2 * 2 * 128 * 64;
  EXPECT_DOUBLE_EQ(with.bytes_read.value - without.bytes_read.value, 2 * k);
  EXPECT_DOUBLE_EQ(with.bytes_written.value - without.bytes_written.value, 2 * k);
  EXPECT_EQ(with.flop.value, without.flop.value);
}

TEST(AttentionKernels, FrameworksRunFlashAttention2) {
  const auto same = [](const char* name) {
    const Gpu gpu = known_gpu(name);
    return us_of_shape(gpu, dense(Generation::kFramework, 16, 2048, 64)) ==
           us_of_shape(gpu, dense(Generation::kFa2, 16, 2048, 64));
  };
  for (const char* name : {"a100-sxm-80gb", "h100-sxm-80gb", "rtx-pro-6000-server"}) {
    EXPECT_TRUE(same(name)) << name;
  }
  EXPECT_FALSE(same("gb200"));  // cuDNN's
  // By figures of an H200. The one traced kernel at hand, an H100's, took 9.1 us.
  EXPECT_NEAR(us_of_shape(known_gpu("h100-sxm-80gb"), dense(Generation::kFramework, 8, 141, 64)),
              9.04, 0.01);
}

TEST(AttentionKernels, WhatAnArchitectureLacksIsTheFrameworksAndOutOfRange) {
  const Gpu a100 = known_gpu("a100-sxm-80gb");
  const Price fa3 = price_of_shape(a100, paged(Generation::kFa3, 1, 16, 16, 512, 128));
  const Price fa2 = price_of_shape(a100, paged(Generation::kFa2, 1, 16, 16, 512, 128));
  EXPECT_EQ(fa3.time, fa2.time);
  EXPECT_FALSE(fa3.in_range);
  EXPECT_TRUE(fa2.in_range);
}

TEST(AttentionKernels, TellWhatWasMeasured) {
  const Gpu rtx = known_gpu("rtx-pro-6000-server"), h100 = known_gpu("h100-sxm-80gb");
  const auto in_range = [](const Gpu& gpu, const AttentionShape& shape,
                           DType dtype = DType::kBFloat16) {
    return price_of_shape(gpu, shape, dtype).in_range;
  };
  const AttentionShape shape = dense(Generation::kFramework, 16, 1024, 64);
  EXPECT_TRUE(in_range(rtx, shape));
  EXPECT_TRUE(in_range(rtx, shape, DType::kFloat16));
  EXPECT_FALSE(in_range(rtx, shape, DType::kFloat32));
  EXPECT_TRUE(in_range(h100, shape));                          // an H200's
  EXPECT_FALSE(in_range(known_gpu("rtx-6000-ada"), shape));    // Ampere's figures
  EXPECT_FALSE(in_range(known_gpu("v100-sxm2-32gb"), shape));  // no figures at all
  EXPECT_FALSE(in_range(rtx, dense(Generation::kFa2, 16, 1024, 32)));
  EXPECT_TRUE(in_range(rtx, dense(Generation::kFa2, 16, 1024, 80)));
  EXPECT_FALSE(in_range(rtx, dense(Generation::kFa2, 16, 1024, 96)));
  AttentionShape causal = shape;
  causal.causal = true;
  EXPECT_FALSE(in_range(rtx, causal));  // for the paged kernel only
  AttentionShape backward = shape;
  backward.pass = AttentionShape::Pass::kBackward;
  EXPECT_FALSE(in_range(rtx, backward));
  EXPECT_TRUE(in_range(h100, backward));
}

TEST(AttentionKernels, TrainingHasKernelsOfItsOwn) {
  // Public rows of head size 128 (FlashAttention-3's figures, flash-attention pull request 2280)
  struct Case {
    const char* gpu;
    Generation kernel;
    std::int64_t batch, seq;
    double forward_us, backward_us;
  };
  const Case cases[] = {{"h100-sxm-80gb", Generation::kFa3, 1, 16384, 3393.55, 9799.57},
                        {"h100-sxm-80gb", Generation::kFa3, 32, 512, 147.15, 543.67},
                        {"b200-sxm-180gb", Generation::kFa4, 4, 8192, 1433, 4043}};
  for (const Case& c : cases) {
    AttentionShape shape = dense(c.kernel, 16, c.seq, 128);
    shape.batch = c.batch;
    const Gpu gpu = known_gpu(c.gpu);
    EXPECT_NEAR(us_of_shape(gpu, shape), c.forward_us, 0.06 * c.forward_us) << c.gpu << c.seq;
    shape.pass = AttentionShape::Pass::kBackward;
    EXPECT_NEAR(us_of_shape(gpu, shape), c.backward_us, 0.06 * c.backward_us) << c.gpu << c.seq;
    shape.causal = true;
    EXPECT_TRUE(price_of_shape(gpu, shape).in_range) << c.gpu;
  }
}

TEST(AttentionKernels, BlackwellUltraComputesExponentialsFaster) {
  // Both have 152 SMs and one peak. Small heads have few products per exponential.
  const auto gain = [](std::int64_t head_dim) {
    AttentionShape shape = dense(Generation::kFa4, 128, 8192, head_dim);
    shape.causal = true;
    return price_of_shape(known_gpu("gb200"), shape).compute /
           price_of_shape(known_gpu("gb300"), shape).compute;
  };
  EXPECT_NEAR(gain(64), 1.6, 0.2);
  EXPECT_NEAR(gain(256), 1.05, 0.04);
}

TEST(AttentionKernels, BackwardKeepsTheRatiosOfFlashAttention2) {
  const Gpu gpu = known_gpu("a100-sxm-80gb");
  AttentionShape shape = dense(Generation::kFramework, 108 * 8, 4096, 64);
  const double forward = price_of_shape(gpu, shape).compute.count();
  shape.pass = AttentionShape::Pass::kBackward;
  EXPECT_NEAR(price_of_shape(gpu, shape).compute.count() / forward, 2.5 * 0.68 / 0.55, 0.05);
  // Blocks own rows of k.
  shape.heads = 1;
  shape.seq_q = 128;
  const double one_wave = price_of_shape(gpu, shape).compute.count();
  shape.seq_k = 128 * 109;
  EXPECT_NEAR(price_of_shape(gpu, shape).compute.count() / one_wave, 1.8, 1e-9);
}

}  // namespace attention_kernels_test
}  // namespace perfmodel
