// Which kernels ops on types of 8 and 4 bits launch, and those on groups of rows.
#include <gtest/gtest.h>

#include "graph_fixture.hpp"

namespace perfmodel {
namespace narrow_ops_test {

using test_support::GraphFixture;
using test_support::round_gpu;

Gpu gpu_with_fp8() {
  Gpu gpu = round_gpu();
  gpu.peak_tflop_per_s.fp8_matrix = 200;
  return gpu;
}

// A recorded torch._scaled_mm: [m, k] x [k, n] with scales, a result in bf16.
GraphFixture::Lowered scaled(std::int64_t m, std::int64_t k, std::int64_t n,
                             std::vector<std::int64_t> scales, DType dtype = DType::kFloat8,
                             bool bias = false) {
  GraphFixture f;
  const Argument scale_a = f.tensor(std::move(scales)), scale_b = f.tensor({1});
  const int node =
      f.node("aten::_scaled_mm",
             {f.tensor({m, k}, dtype), f.tensor({k, n}, dtype), scale_a, scale_b,
              bias ? f.tensor({n}, DType::kBFloat16) : GraphFixture::none(), GraphFixture::none(),
              GraphFixture::integer(15), GraphFixture::boolean(true)},
             {f.tensor({m, n}, DType::kBFloat16)});
  return f.lower(node, gpu_with_fp8());
}

TEST(NarrowOps, ScaledProductReadsBytesAndWritesHalves) {
  const auto lowered = scaled(64, 256, 32, {1});
  ASSERT_TRUE(lowered.known && lowered.ok);
  ASSERT_EQ(lowered.kernels.size(), 1U);
  const KernelWork& work = lowered.kernels[0];
  EXPECT_EQ(work.family, KernelFamily::kGemm);
  EXPECT_EQ(work.dtype, DType::kFloat8);
  EXPECT_TRUE(work.matrix_units);
  EXPECT_DOUBLE_EQ(work.flop.value, 2.0 * 64 * 256 * 32);
  EXPECT_DOUBLE_EQ(work.bytes_read.value, 64 * 256 + 256 * 32);
  EXPECT_DOUBLE_EQ(work.bytes_written.value, 2 * 64 * 32);
  const auto& shape = std::get<GemmShape>(work.shape);
  EXPECT_EQ(shape.m, 64);
  EXPECT_EQ(shape.k, 256);
  EXPECT_EQ(shape.n, 32);
  EXPECT_TRUE(shape.b_transposed);
  EXPECT_EQ(shape.scaling, Scaling::kTensor);
  EXPECT_FALSE(shape.has_bias);
}

TEST(NarrowOps, ScalesTellWhatSharesThem) {
  const auto scaling = [](const GraphFixture::Lowered& lowered) {
    return std::get<GemmShape>(lowered.kernels.at(0).shape).scaling;
  };
  EXPECT_EQ(scaling(scaled(64, 256, 32, {64, 1})), Scaling::kToken);
  EXPECT_EQ(scaling(scaled(64, 256, 32, {64, 2})), Scaling::kBlock);
  EXPECT_EQ(scaling(scaled(64, 256, 32, {})), Scaling::kTensor);  // a number
  const auto biased = scaled(64, 256, 32, {1}, DType::kFloat8, true);
  EXPECT_TRUE(std::get<GemmShape>(biased.kernels.at(0).shape).has_bias);
}

TEST(NarrowOps, ElementsOfFourBitsArePairs) {
  const auto lowered = scaled(64, 128, 32, {64, 16}, DType::kFloat4);
  ASSERT_EQ(lowered.kernels.size(), 1U);
  const KernelWork& work = lowered.kernels[0];
  EXPECT_EQ(std::get<GemmShape>(work.shape).k, 256);
  EXPECT_DOUBLE_EQ(work.flop.value, 2.0 * 64 * 256 * 32);
  // Half a byte per number, a byte of scale per 16.
  EXPECT_DOUBLE_EQ(work.bytes_read.value, (64.0 + 32) * 256 * (0.5 + 1.0 / 16));
}

TEST(NarrowOps, ScaledProductOfOtherShapesIsNotModelled) {
  GraphFixture f;
  const int node = f.node("aten::_scaled_mm",
                          {f.tensor({4, 16}, DType::kFloat8), f.tensor({32, 8}, DType::kFloat8)},
                          {f.tensor({4, 8}, DType::kBFloat16)});
  EXPECT_FALSE(f.lower(node, gpu_with_fp8()).ok);
}

TEST(NarrowOps, GroupedProductDoesTheRowsOnce) {
  GraphFixture f;
  const int node = f.node("aten::_grouped_mm",
                          {f.tensor({1000, 64}, DType::kBFloat16),
                           f.tensor({8, 64, 32}, DType::kBFloat16), f.tensor({8}, DType::kInt32)},
                          {f.tensor({1000, 32}, DType::kBFloat16)});
  const auto lowered = f.lower(node, round_gpu());
  ASSERT_TRUE(lowered.known && lowered.ok);
  ASSERT_EQ(lowered.kernels.size(), 1U);
  const KernelWork& work = lowered.kernels[0];
  EXPECT_EQ(work.family, KernelFamily::kGroupedGemm);
  EXPECT_DOUBLE_EQ(work.flop.value, 2.0 * 1000 * 64 * 32);
  EXPECT_DOUBLE_EQ(work.bytes().value, 2.0 * (1000 * 64 + 8 * 64 * 32 + 1000 * 32));
  const auto& shape = std::get<GroupedGemmShape>(work.shape);
  EXPECT_EQ(shape.groups, 8);
  EXPECT_EQ(shape.rows, 1000);
  EXPECT_EQ(shape.n, 32);
  EXPECT_EQ(shape.k, 64);
}

// The gradient of the matrices: columns [32, 1000] x rows [1000, 64], one matrix per group.
TEST(NarrowOps, GroupedGradientWritesAllMatrices) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat8}) {
    GraphFixture f;
    const bool narrow = dtype == DType::kFloat8;
    const int node = f.node(narrow ? "aten::_scaled_grouped_mm" : "aten::_grouped_mm",
                            {f.tensor({32, 1000}, dtype), f.tensor({1000, 64}, dtype),
                             f.tensor({1}), f.tensor({1}), f.tensor({8}, DType::kInt32)},
                            {f.tensor({8, 32, 64}, DType::kBFloat16)});
    const auto lowered = f.lower(node, gpu_with_fp8());
    ASSERT_TRUE(lowered.ok);
    ASSERT_EQ(lowered.kernels.size(), 1U);
    const KernelWork& work = lowered.kernels[0];
    EXPECT_EQ(work.dtype, dtype);
    EXPECT_DOUBLE_EQ(work.flop.value, 2.0 * 1000 * 64 * 32);
    EXPECT_DOUBLE_EQ(work.bytes_read.value, (narrow ? 1 : 2) * 1000.0 * (32 + 64));
    EXPECT_DOUBLE_EQ(work.bytes_written.value, 2.0 * 8 * 32 * 64);
  }
}

TEST(NarrowOps, QuantisingReadsOnceAndWritesEveryCopy) {
  for (const bool both : {false, true}) {
    GraphFixture f;
    const Argument columns = both ? f.tensor({128, 512}, DType::kFloat8) : GraphFixture::none();
    const int node = f.node(
        "transformer_engine::quantize",
        {f.tensor({512, 128}, DType::kBFloat16), GraphFixture::integer(24)},
        {f.tensor({512, 128}, DType::kFloat8), columns, f.tensor({1}), GraphFixture::none()});
    const auto lowered = f.lower(node, gpu_with_fp8());
    ASSERT_TRUE(lowered.known && lowered.ok);
    ASSERT_EQ(lowered.kernels.size(), 1U);
    const KernelWork& work = lowered.kernels[0];
    EXPECT_EQ(work.family, KernelFamily::kQuantize);
    EXPECT_EQ(work.dtype, DType::kFloat8);
    EXPECT_DOUBLE_EQ(work.bytes_read.value, 2 * 512 * 128);
    EXPECT_DOUBLE_EQ(work.bytes_written.value, (both ? 2 : 1) * 512 * 128 + 4);
    const auto& shape = std::get<RowShape>(work.shape);
    EXPECT_EQ(shape.rows, 512);
    EXPECT_EQ(shape.cols, 128);
    EXPECT_EQ(shape.scaling, Scaling::kTensor);
  }
}

TEST(NarrowOps, ScalesOfPowersOfTwoAreAKnownType) {
  EXPECT_EQ(parse_dtype("c10::Float8_e8m0fnu"), DType::kFloat8);
  EXPECT_EQ(parse_dtype("c10::Float8_e4m3fnuz"), DType::kFloat8);  // AMD's
  GraphFixture f;
  const int node = f.node("aten::_scaled_mm",
                          {f.tensor({64, 256}, DType::kFloat8), f.tensor({256, 32}, DType::kFloat8),
                           f.tensor({64, 8}, DType::kFloat8), f.tensor({32, 8}, DType::kFloat8)},
                          {f.tensor({64, 32}, DType::kBFloat16)});
  const auto lowered = f.lower(node, gpu_with_fp8());
  ASSERT_TRUE(lowered.ok);
  EXPECT_EQ(std::get<GemmShape>(lowered.kernels.at(0).shape).scaling, Scaling::kBlock);
}

TEST(NarrowOps, GroupedProductsOfMissingTypesAreOutOfRange) {
  GraphFixture f;
  const int node =
      f.node("aten::_scaled_grouped_mm",
             {f.tensor({1000, 64}, DType::kFloat8), f.tensor({8, 64, 32}, DType::kFloat8),
              f.tensor({1}), f.tensor({1}), f.tensor({8}, DType::kInt32)},
             {f.tensor({1000, 32}, DType::kBFloat16)});
  const KernelWork work = f.lower(node, round_gpu()).kernels.at(0);
  EXPECT_TRUE(lacks_units(work, round_gpu()));
  EXPECT_FALSE(lacks_units(work, gpu_with_fp8()));
}

}  // namespace narrow_ops_test
}  // namespace perfmodel
