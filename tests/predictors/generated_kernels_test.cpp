// Kernels that torch.compile wrote in Triton: their bytes and times.
#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "graph_fixture.hpp"
#include "perfmodel/predictors/detail/op_rules.hpp"
#include "perfmodel/predictors/kernel.hpp"

namespace perfmodel {
namespace generated_kernels_test {

using test_support::GraphFixture;

class GeneratedKernels : public ::testing::Test {
 protected:
  GraphFixture f;
  Gpu gpu = test_support::round_gpu();

  // The rule is found by the backend of the node, not by its name.
  KernelWork work(std::string_view name, const std::vector<Argument>& inputs,
                  const std::vector<Argument>& outputs = {}) {
    const int node = f.node(name, inputs, outputs);
    std::vector<KernelWork> kernels;
    EXPECT_TRUE(OpRuleRegistry::builtin().find("triton")->lower(
        OpView{f.graph(), f.at(node), nullptr}, gpu, kernels));
    EXPECT_EQ(kernels.size(), 1U);
    return kernels.empty() ? KernelWork{} : kernels.front();
  }
  double time_us(const KernelWork& of) {
    return KernelModels::heuristic().price(of, gpu).time.count();
  }
};

TEST_F(GeneratedKernels, APointwiseKernelWalksItsElements) {
  const KernelWork made =
      work("triton_poi_fused_add_cos_0", {f.tensor({64, 8}), f.tensor({64, 8}), f.integer(512)},
           {f.tensor({64, 8})});
  EXPECT_EQ(made.family, KernelFamily::kElementwise);
  EXPECT_EQ(made.layout, Layout::kGenerated);
  EXPECT_DOUBLE_EQ(made.bytes_read.value, 2 * 512 * 4);
  EXPECT_DOUBLE_EQ(made.bytes_written.value, 512 * 4);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(made.shape));
}

TEST_F(GeneratedKernels, AGatherReadsNoMoreOfATableThanItHasElements) {
  // 16 rows of 32 out of a table of 50,000.
  const KernelWork made = work(
      "triton_poi_fused_embedding_0",
      {f.tensor({16}, DType::kInt64), f.tensor({50000, 32}), f.tensor({16, 32}), f.integer(512)});
  EXPECT_DOUBLE_EQ(made.bytes_read.value, 16 * 8 + 512 * 4);
  EXPECT_DOUBLE_EQ(made.bytes_written.value, 512 * 4);
}

TEST_F(GeneratedKernels, TheStreamOfAnObserverIsNoSize) {
  const std::int64_t pointer = 140382148398488;
  const KernelWork made = work("triton_poi_fused_add_0", {f.tensor({100}), f.tensor({100}),
                                                          f.integer(100), f.integer(pointer)});
  EXPECT_DOUBLE_EQ(made.bytes().value, 800);
  // Tiles of two axes: 4 x 25.
  const KernelWork tiled = work("triton_poi_fused_transpose_0",
                                {f.tensor({100}), f.tensor({100}), f.integer(4), f.integer(25)});
  EXPECT_DOUBLE_EQ(tiled.bytes().value, 800);
}

TEST_F(GeneratedKernels, AKernelThatCombinesRowsHasThem) {
  const KernelWork made = work("triton_per_fused_native_layer_norm_0",
                               {f.tensor({64, 32}), f.tensor({32}), f.integer(64), f.integer(32)},
                               {f.tensor({64, 32})});
  const auto& rows = std::get<RowShape>(made.shape);
  EXPECT_EQ(rows.rows, 64);
  EXPECT_EQ(rows.cols, 32);
  EXPECT_DOUBLE_EQ(made.bytes_read.value, 4 * (64 * 32 + 32));
}

TEST_F(GeneratedKernels, ASumCountsNoOpThatMadeItsInput) {
  const KernelWork made =
      work("triton_red_fused_gelu_gelu_backward_sum_0",
           {f.tensor({64, 32}), f.integer(32), f.integer(64)}, {f.tensor({32})});
  EXPECT_DOUBLE_EQ(made.flop.value, 64 * 32);
}

TEST_F(GeneratedKernels, RandomNumbersCostTimeOfTheirOwn) {
  const auto of = [&](std::string_view name, std::int64_t rows) {
    return work(name, {f.tensor({rows, 1024}), f.integer(rows), f.integer(1024)},
                {f.tensor({rows, 1024})});
  };
  const auto clocks_of_number = [&](std::int64_t rows) {
    const KernelWork drawn = of("triton_per_fused_native_dropout_native_layer_norm_0", rows);
    const KernelWork masked =
        of("triton_per_fused_native_dropout_backward_native_layer_norm_0", rows);
    EXPECT_GT(time_us(drawn), time_us(masked));
    const double of_clock = *gpu.peak_tflop_per_s.fp32 * 1e6 / (gpu.num_sms * gpu.boost_clock_mhz);
    return (drawn.flop.value - masked.flop.value) / static_cast<double>(rows * 1024) /
           (of_clock / 2);
  };
  // A wave is 32 rows on each SM: 1.6 clocks of an SM in the first, 0.7 in many. Masks, which are
  // FLOP too, cost the same for all.
  const std::int64_t wave = 32 * gpu.num_sms;
  const double many = clocks_of_number(20 * wave);
  EXPECT_GE(many, 0.7);
  EXPECT_NEAR(clocks_of_number(2 * wave) - many, 0.1, 1e-9);
  EXPECT_NEAR(clocks_of_number(wave) - many, 0.9, 1e-9);
  EXPECT_NEAR(clocks_of_number(wave / 2) - many, 0.9, 1e-9);
}

TEST_F(GeneratedKernels, AListOfTensorsIsAnOptimizers) {
  const KernelWork made =
      work("triton_for_fused_0",
           {f.tensor({10}), f.tensor({10}), f.tensor({20}), f.tensor({20}), f.integer(30)},
           {f.tensor({10}), f.tensor({20})});
  EXPECT_EQ(made.family, KernelFamily::kOptimizer);
  EXPECT_DOUBLE_EQ(made.bytes_read.value, 240);
  EXPECT_DOUBLE_EQ(made.bytes_written.value, 120);
}

TEST_F(GeneratedKernels, AWarpOfARowDoesOneThingAfterTheOther) {
  // Pointwise kernels overlap memory and arithmetic, row kernels add them up.
  KernelWork pointwise = work("triton_poi_fused_gelu_0", {f.tensor({1 << 22}), f.integer(1 << 22)},
                              {f.tensor({1 << 22})});
  pointwise.flop = {1e9};
  KernelWork rows = pointwise;
  rows.shape = RowShape{.rows = 1 << 12, .cols = 1 << 10};
  const Price apart = KernelModels::heuristic().price(rows, gpu);
  EXPECT_NEAR(apart.time.count(),
              apart.latency.count() + apart.memory.count() + apart.compute.count(), 1e-9);
  EXPECT_LT(time_us(pointwise), apart.time.count());
  EXPECT_EQ(apart.model, "generated-heuristic");
}

TEST_F(GeneratedKernels, TypesCostNothingButTheirBytes) {
  const auto of = [&](DType dtype) {
    return work("triton_poi_fused_add_0",
                {f.tensor({1 << 24}, dtype), f.tensor({1 << 24}), f.integer(1 << 24)},
                {f.tensor({1 << 24}, dtype)});
  };
  EXPECT_LT(time_us(of(DType::kBFloat16)), time_us(of(DType::kFloat32)));
}

TEST(NamesOfGeneratedKernels, TellWhatTheyDo) {
  const std::pair<std::string_view, KernelFamily> kNames[] = {
      {"triton_poi_fused_gelu_view_2", KernelFamily::kElementwise},
      {"triton_per_fused_add_addmm_native_layer_norm_view_3", KernelFamily::kElementwise},
      {"triton_red_fused_native_layer_norm_backward_view_1", KernelFamily::kElementwise},
      {"triton_for_fused_0", KernelFamily::kOptimizer},
      {"triton_tem_fused_mm_4", KernelFamily::kGemm},
      {"triton_tem_fused_convolution_1", KernelFamily::kConvolution},
      {"triton_tem_fused_flex_attention_0", KernelFamily::kAttention}};
  for (const auto& [name, family] : kNames) EXPECT_EQ(kernel_family_of_name(name), family) << name;
}

}  // namespace generated_kernels_test
}  // namespace perfmodel
