/// Products of 8 and 4 bits, the kernels that quantise for them, and types that a GPU lacks.
#include <gtest/gtest.h>

#include <filesystem>

#include "perfmodel/predictors/gpu.hpp"
#include "price/kernel_work.hpp"
#include "price/learned/features.hpp"

namespace perfmodel {
namespace scaled_gemm_test {

Gpu known(const char* name) {
  const auto gpu = find_gpu(name, std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus");
  EXPECT_TRUE(gpu.has_value()) << to_string(gpu.error());
  return *gpu;
}

Price price(const Gpu& gpu, const KernelWork& work) {
  return KernelModels::heuristic().price(work, gpu);
}

constexpr DType kFp8 = DType::kFloat8, kFp4 = DType::kFloat4;

TEST(ScaledGemm, ScalesCountBesideTheNumbers) {
  const auto read = [](Scaling scaling, DType dtype) {
    return gemm_work({.m = 10, .n = 256, .k = 512, .scaling = scaling}, dtype, true)
        .bytes_read.value;
  };
  const double a = 10 * 512, b = 256 * 512;
  EXPECT_DOUBLE_EQ(read(Scaling::kTensor, kFp8), a + b);
  EXPECT_DOUBLE_EQ(read(Scaling::kToken, kFp8), a + b + 4 * (10 + 256));
  EXPECT_DOUBLE_EQ(read(Scaling::kBlock, kFp8), a + b + 4 * (10 * 4 + 4 * 2));
  EXPECT_DOUBLE_EQ(read(Scaling::kBlock, kFp4), (a + b) / 2 + (a + b) / 16);
}

TEST(ScaledGemm, QuantisingReadsBf16AndWritesWhatTheProductReads) {
  const KernelWork quantize = quantize_work(10, 512, kFp8, Scaling::kToken);
  EXPECT_DOUBLE_EQ(quantize.bytes_read.value, 2 * 10 * 512);
  EXPECT_DOUBLE_EQ(quantize.bytes_written.value, 10 * 512 + 4 * 10);
  const GemmShape shape{.m = 10, .n = 256, .k = 512, .scaling = Scaling::kToken};
  GemmShape layer = shape;
  layer.quantizes_a = true;
  const double product = gemm_work(shape, kFp8, true).bytes().value;
  EXPECT_DOUBLE_EQ(gemm_work(layer, kFp8, true).bytes().value, product + quantize.bytes().value);
}

TEST(ScaledGemm, ALayerTakesBothKernels) {
  for (const char* name : {"h100-sxm-80gb", "b200-sxm-180gb", "rtx-pro-6000-server", "mi300x"}) {
    const Gpu gpu = known(name);
    for (const Scaling scaling : {Scaling::kTensor, Scaling::kToken, Scaling::kBlock}) {
      GemmShape shape{.m = 300, .n = 4096, .k = 7168, .scaling = scaling};
      const Price product = price(gpu, gemm_work(shape, kFp8, true));
      const Price quantize = price(gpu, quantize_work(shape.m, shape.k, kFp8, scaling));
      shape.quantizes_a = true;
      const Price layer = price(gpu, gemm_work(shape, kFp8, true));
      EXPECT_NEAR(layer.time.count(), product.time.count() + quantize.time.count(), 1e-9) << name;
      EXPECT_EQ(layer.in_range, product.in_range && quantize.in_range) << name;
    }
  }
}

TEST(ScaledGemm, QuantisingIsTheFormula) {
  // H100: 1.38 us and 6.08 elements per clock, 132 SMs at 1980 MHz: 1 M elements lie in L2
  const Gpu h100 = known("h100-sxm-80gb");
  const KernelWork small = quantize_work(256, 4096, kFp8, Scaling::kTensor);
  EXPECT_NEAR(price(h100, small).time.count(), 1.38 + 256 * 4096 / (6.08 * 132 * 1980), 1e-6);
  EXPECT_TRUE(price(h100, small).in_range);
  // 268 M elements: 3 bytes each over 0.904 of 3352 GB/s
  const KernelWork large = quantize_work(16384, 16384, kFp8, Scaling::kTensor);
  EXPECT_NEAR(price(h100, large).time.count(), 1.38 + 16384.0 * 16384 * 3 / (0.904 * 3.352e6),
              1e-3);
  EXPECT_FALSE(price(known("mi300x"), small).in_range);  // not measured there
}

TEST(ScaledGemm, Fp4IsFasterThanFp8ThanBf16) {
  const Gpu b200 = known("b200-sxm-180gb");
  const GemmShape large{.m = 8192, .n = 8192, .k = 8192, .scaling = Scaling::kToken};
  const double fp4 = price(b200, gemm_work(large, kFp4, true)).time.count(),
               fp8 = price(b200, gemm_work(large, kFp8, true)).time.count(),
               bf16 = price(b200, gemm_work(large, DType::kBFloat16, true)).time.count();
  EXPECT_LT(1.2 * fp4, fp8);
  EXPECT_LT(1.2 * fp8, bf16);
  EXPECT_GT(fp4, 2 * 8192.0 * 8192 * 8192 / b200.peak(kFp4, true).value * 1e6);
}

TEST(ScaledGemm, AProductAloneTakesTheRatioOfItsLayer) {
  const learned::FeatureSet& set = *learned::feature_set(KernelFamily::kGemm, kFp8);
  const auto row = [&](const Gpu& gpu, bool quantizes) {
    const KernelWork work = gemm_work(
        {.m = 64, .n = 1024, .k = 2048, .scaling = Scaling::kToken, .quantizes_a = quantizes}, kFp8,
        true);
    learned::FeatureRow made{};
    EXPECT_TRUE(set.fill(work, gpu, price(gpu, work), made));
    return made;
  };
  EXPECT_EQ(row(known("b200-sxm-180gb"), false), row(known("b200-sxm-180gb"), true));
  EXPECT_NE(row(known("mi300x"), false), row(known("mi300x"), true));  // measured alone there
}

// A recipe in 8 bits is one in bf16 with narrower products: no GPU runs it faster for want of
// units.
TEST(ScaledGemm, NarrowTypesWithoutUnitsRunAtTheRateOfBf16) {
  for (const char* name : {"v100-sxm2-32gb", "t4", "p100-pcie-16gb", "a100-sxm-80gb", "mi100"}) {
    const Gpu gpu = known(name);
    EXPECT_EQ(gpu.peak(kFp8, true).value, gpu.peak(DType::kBFloat16, true).value) << name;
    EXPECT_EQ(gpu.peak(kFp4, true).value, gpu.peak(DType::kBFloat16, true).value) << name;
  }
  const Gpu h100 = known("h100-sxm-80gb");
  EXPECT_EQ(h100.peak(kFp4, true).value, h100.peak(kFp8, true).value);
}

TEST(ScaledGemm, TypesThatAGpuLacksAreOutOfRange) {
  const GemmShape shape{.m = 1024, .n = 1024, .k = 1024, .scaling = Scaling::kToken};
  EXPECT_TRUE(has_matrix_units(kFp8, known("h100-sxm-80gb")));
  EXPECT_FALSE(has_matrix_units(kFp4, known("h100-sxm-80gb")));
  EXPECT_TRUE(has_matrix_units(kFp4, known("rtx-5090")));
  EXPECT_TRUE(has_matrix_units(DType::kBFloat16, known("v100-sxm2-32gb")));  // computed elsewhere
  EXPECT_TRUE(price(known("h100-sxm-80gb"), gemm_work(shape, kFp8, true)).in_range);
  EXPECT_FALSE(price(known("v100-sxm2-32gb"), gemm_work(shape, kFp8, true)).in_range);
  EXPECT_FALSE(price(known("h100-sxm-80gb"), gemm_work(shape, kFp4, true)).in_range);
  const KernelWork works[] = {gemm_work(shape, kFp4, true), gemm_work(shape, kFp8, true)};
  Price prices[2];
  KernelModels::heuristic().price_many(works, known("h100-sxm-80gb"), prices);
  EXPECT_FALSE(prices[0].in_range);
  EXPECT_TRUE(prices[1].in_range);
}

}  // namespace scaled_gemm_test
}  // namespace perfmodel
