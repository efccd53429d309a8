// Warnings of products in a type that the GPU's matrix units lack come first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"
#include "price/kernel_work.hpp"
#include "rewrites/attention_support.hpp"

namespace perfmodel {
namespace lacking_units_test {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Gpu known_gpu(const char* name) {
  return find_gpu(name, std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus").value();
}

Prediction predicted(const ExecutionGraph& graph, const char* gpu) {
  const auto data = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";
  return predict(graph, known_gpu(gpu),
                 read_overheads(data / "overheads" / "reference.json").value())
      .value();
}

Prediction predicted_in(DType dtype, const char* gpu) {
  ExecutionGraph graph = build_mlp(mlp_preset("mnist").value()).value();
  for (Tensor& tensor : graph.tensors) {
    if (tensor.dtype != DType::kFloat32) continue;
    tensor.dtype = dtype;
    tensor.item_size = size_in_bytes(dtype);
  }
  return predicted(graph, gpu);
}

TEST(LackingUnits, AreTheFirstWarning) {
  const Prediction v100 = predicted_in(DType::kFloat8, "v100-sxm2-32gb");
  ASSERT_THAT(v100.warnings, Not(IsEmpty()));
  EXPECT_THAT(v100.warnings[0], HasSubstr("v100-sxm2-32gb has no matrix units for float8"));
  EXPECT_GT(v100.coverage.kernels_out_of_range, 0U);
}

TEST(LackingUnits, AreNoMatterWhereTheGpuHasThem) {
  EXPECT_THAT(predicted_in(DType::kFloat8, "h100-sxm-80gb").coverage.lacking_units, IsEmpty());
  EXPECT_THAT(predicted_in(DType::kFloat16, "v100-sxm2-32gb").coverage.lacking_units, IsEmpty());
  EXPECT_THAT(predicted_in(DType::kFloat16, "p100-pcie-16gb").coverage.lacking_units, IsEmpty());
}

TEST(LackingUnits, ProductsAtTheRateOfFp32AreTold) {
  for (const auto& [dtype, gpu] :
       {std::pair{DType::kBFloat16, "v100-sxm2-32gb"}, std::pair{DType::kBFloat16, "t4"},
        std::pair{DType::kFloat16, "titan-xp"}}) {
    const Prediction slow = predicted_in(dtype, gpu);
    ASSERT_THAT(slow.warnings, Not(IsEmpty()));
    EXPECT_THAT(slow.warnings[0], HasSubstr("are priced at the rate of fp32, out of range"));
    EXPECT_GT(slow.coverage.kernels_out_of_range, 0U);
  }
}

ExecutionGraph small_gpt(PrecisionOptions options) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 1;
  config.batch = 1;
  config.sequence = 128;
  return rewrite_precision(build_gpt(config).value(), options).value();
}

// Hopper, Ada and CDNA 3 scale tensors and rows of 8 bits, not blocks of 32 numbers.
TEST(LackingUnits, BlockScalesOfEightBitsAreTold) {
  using Scaling = PrecisionOptions::Scaling;
  const auto in_8_bits = [](Scaling scaling) {
    return small_gpt({.precision = PrecisionOptions::Precision::kFp8, .scaling = scaling});
  };
  const ExecutionGraph mx = in_8_bits(Scaling::kMx);
  for (const char* gpu : {"h100-sxm-80gb", "l40s", "mi300x"}) {
    const Prediction made = predicted(mx, gpu);
    ASSERT_THAT(made.coverage.lacking_units, SizeIs(1)) << gpu;
    EXPECT_EQ(made.warnings[0], made.coverage.lacking_units[0]);
    EXPECT_THAT(made.warnings[0], HasSubstr("block scales of 8 bits (mxfp8): 12 kernels"));
    EXPECT_GE(made.coverage.kernels_out_of_range, 12U);
  }
  for (const char* gpu : {"b200-sxm-180gb", "mi355x"}) {
    EXPECT_THAT(predicted(mx, gpu).coverage.lacking_units, IsEmpty()) << gpu;
  }
  const Prediction a100 = predicted(mx, "a100-sxm-80gb");  // lacks the type itself
  ASSERT_THAT(a100.coverage.lacking_units, SizeIs(1));
  EXPECT_THAT(a100.warnings[0], HasSubstr("no matrix units for float8"));
  EXPECT_THAT(predicted(in_8_bits(Scaling::kBlock128), "h100-sxm-80gb").coverage.lacking_units,
              IsEmpty());
}

TEST(LackingUnits, Tf32ThatRunsInFp32IsTold) {
  const ExecutionGraph tf32 = small_gpt({.precision = PrecisionOptions::Precision::kTf32});
  for (const auto& [gpu, words] :
       {std::pair{"v100-sxm2-32gb", "no matrix units for TF32"},
        std::pair{"mi210", "no matrix units for TF32"},
        std::pair{"mi300x", "multiplies in TF32 only if HIPBLASLT_ALLOW_TF32 is 1"}}) {
    const Prediction made = predicted(tf32, gpu);
    ASSERT_THAT(made.coverage.lacking_units, SizeIs(1)) << gpu;
    EXPECT_THAT(made.warnings[0], HasSubstr(words));
  }
  EXPECT_THAT(predicted(tf32, "a100-sxm-80gb").coverage.lacking_units, IsEmpty());
  EXPECT_THAT(predicted(small_gpt({}), "v100-sxm2-32gb").coverage.lacking_units, IsEmpty());
}

ExecutionGraph attention_gpt(AttentionBackend kernel, std::int64_t head_width = 64) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 1;
  config.heads = 4;
  config.hidden = config.heads * head_width;
  config.batch = 1;
  config.sequence = 128;
  const ExecutionGraph half = rewrite_precision(build_gpt(config).value(),
                                                {.precision = PrecisionOptions::Precision::kBf16})
                                  .value();
  return rewrite_attention(half, kernel).value();
}

// One call forward, one backward. The same graphs on a GPU that has the kernel say nothing.
TEST(LackingAttention, IsTheFirstWarning) {
  struct Case {
    AttentionBackend kernel;
    const char *lacks, *has, *why;
    std::int64_t width = 64;
    const char* calls = "2 calls";
  };
  for (const Case& one : {
           Case{AttentionBackend::kFlash, "v100-sxm2-32gb", "a100-sxm-80gb",
                "flash attention needs sm_80 or later"},
           Case{AttentionBackend::kFlash, "t4", "l40s", "flash attention needs sm_80 or later"},
           Case{AttentionBackend::kFlash, "mi100", "mi300x", "no fused attention for gfx908"},
           Case{AttentionBackend::kEfficient, "v100-sxm2-32gb", "a100-sxm-80gb",
                "efficient attention in bf16 needs sm_80 or later"},
           Case{AttentionBackend::kCudnn, "mi300x", "h100-sxm-80gb", "mi300x has no cuDNN"},
           Case{AttentionBackend::kCudnn, "a100-sxm-80gb", "h100-sxm-80gb",
                "cudnn attention with heads of 256 needs sm_90", 256},
           Case{AttentionBackend::kFlash, "l40s", "a100-sxm-80gb",
                "no gradients of heads of 224 on sm_86 to sm_89", 224, "1 call "},
       }) {
    const ExecutionGraph graph = attention_gpt(one.kernel, one.width);
    const Prediction made = predicted(graph, one.lacks);
    ASSERT_FALSE(made.warnings.empty()) << one.why;
    EXPECT_THAT(made.warnings[0], HasSubstr(one.why)) << one.lacks;
    EXPECT_THAT(made.warnings[0], HasSubstr(one.calls)) << one.lacks;
    EXPECT_THAT(lacking_attention(graph, known_gpu(one.lacks)),
                ElementsAre(AllOf(HasSubstr(one.why), HasSubstr(one.calls))));
    EXPECT_GT(made.coverage.kernels_out_of_range, 0U) << one.lacks;
    EXPECT_THAT(predicted(graph, one.has).coverage.lacking_units, IsEmpty()) << one.has;
    EXPECT_THAT(lacking_attention(graph, known_gpu(one.has)), IsEmpty()) << one.has;
  }
}

TEST(LackingUnits, PricesOfRowsInTf32AreOutOfRangeWithoutIt) {
  const KernelWork tf32 = gemm_work({.m = 512, .n = 512, .k = 512}, DType::kFloat32, true);
  EXPECT_TRUE(computes_in_fp32(tf32, known_gpu("v100-sxm2-32gb")));
  EXPECT_FALSE(computes_in_fp32(tf32, known_gpu("a100-sxm-80gb")));
  EXPECT_FALSE(computes_in_fp32(tf32, known_gpu("mi210")));  // exact fp32 on matrix units
}

}  // namespace lacking_units_test
}  // namespace perfmodel
