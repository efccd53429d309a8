// Tests of the order of advice, its gains and its lines of PyTorch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "optimize/advice_search.hpp"
#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/optimize.hpp"
#include "perfmodel/predict.hpp"
#include "rewrites/attention_support.hpp"
#include "rewrites/rewrite_options.hpp"

namespace perfmodel {
namespace advice_order_test {

using testing::HasSubstr;

const std::filesystem::path kData = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";

const OverheadTable& reference() {
  static const OverheadTable table = read_overheads(kData / "overheads" / "reference.json").value();
  return table;
}

Gpu gpu_called(const char* name) { return find_gpu(name, kData / "gpus").value(); }
WhatIfTarget target_on(const char* gpu) {
  return {.gpu = gpu_called(gpu), .overheads = &reference()};
}

// Long sequences: the scores of attention take most of the step.
ExecutionGraph half_gpt() {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 2;
  config.hidden = 768;
  config.heads = 12;
  config.feed_forward = 3072;
  config.vocabulary = 1024;
  config.batch = 32;
  config.dropout = 0;
  set_sequence(config, 1024);
  config.training.optimizer = TrainingOptions::Optimizer::kAdamW;
  return rewrite_precision(build_gpt(config).value(),
                           {.precision = PrecisionOptions::Precision::kBf16})
      .value();
}

Advice advice_of(const ExecutionGraph& graph, const char* gpu,
                 const OptimizeOptions& options = {}) {
  auto advice = optimize(graph, target_on(gpu), options);
  EXPECT_TRUE(advice) << to_string(advice.error());
  return advice ? std::move(*advice) : Advice{};
}

double step_after(const ExecutionGraph& graph, const char* gpu,
                  const std::vector<std::pair<std::string, std::string>>& flags) {
  std::vector<NamedRewrite> rewrites;
  for (const auto& [flag, value] : flags) {
    rewrites.push_back(named_rewrite(*find_rewrite_option(flag), value).value());
  }
  const auto made = apply_rewrites(graph, rewrites);
  EXPECT_TRUE(made) << to_string(made.error());
  const WhatIfTarget target = target_on(gpu);
  return predict(*made, target.gpu, *target.overheads, target.options).value().e2e_us;
}

// The example, smaller: fused attention and a compiled model come before everything else.
TEST(AdviceOrder, FusedAttentionAndCompilationComeFirst) {
  const ExecutionGraph graph = half_gpt();
  const Advice advice = advice_of(graph, "a100-sxm-80gb");
  ASSERT_GE(advice.combination.size(), 2U);
  std::vector<std::string> first = {advice.combination[0].family, advice.combination[1].family};
  EXPECT_THAT(first, testing::UnorderedElementsAre("attention", "compile"));
  for (const CombinedStep& step : advice.combination) EXPECT_FALSE(step.code.empty());
  const auto flash = std::ranges::find(advice.steps, "--attention flash", &AdvisedStep::rewrite);
  ASSERT_NE(flash, advice.steps.end());
  EXPECT_THAT(flash->code, HasSubstr("F.scaled_dot_product_attention("));
  EXPECT_NEAR(flash->step_us, step_after(graph, "a100-sxm-80gb", {{"attention", "flash"}}), 1e-6);
}

// Each row tells the step with it and all rows above it.
TEST(AdviceOrder, RowsOfTheCombinationAddUpToTheBestStep) {
  const ExecutionGraph graph = half_gpt();
  const Advice advice =
      advice_of(graph, "h100-sxm-80gb", {.allow = {"attention", "compile", "optimizer"}});
  ASSERT_FALSE(advice.combination.empty());
  ASSERT_TRUE(advice.combination.back().then_us);
  EXPECT_DOUBLE_EQ(*advice.combination.back().then_us, advice.best_us);
  double before = advice.baseline_us;
  for (const CombinedStep& step : advice.combination) {
    ASSERT_TRUE(step.then_us) << step.rewrite;
    EXPECT_LE(*step.then_us, before * 1.001) << step.rewrite;
    before = *step.then_us;
  }
}

TEST(AdviceOrder, WhatChangesNumbersComesFirstOnlyForFiveTimesTheGain) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 2;
  config.batch = 4;
  set_sequence(config, 256);
  config.training.optimizer = TrainingOptions::Optimizer::kAdamW;
  for (const ExecutionGraph& graph : {build_gpt(config).value(), half_gpt()}) {
    for (const char* gpu : {"a100-sxm-80gb", "t4"}) {
      const Advice advice = advice_of(graph, gpu);
      for (std::size_t i = 0; i + 1 < advice.steps.size(); ++i) {
        const AdvisedStep &a = advice.steps[i], &b = advice.steps[i + 1];
        EXPECT_GE(advice::worth_us(a.gain_us, a.same_numbers),
                  advice::worth_us(b.gain_us, b.same_numbers));
        if (!a.same_numbers && b.same_numbers) {
          EXPECT_GE(a.gain_us, 5 * b.gain_us) << a.rewrite;
        }
      }
      EXPECT_GE(advice.same_numbers_us, advice.best_us);
      EXPECT_LE(advice.same_numbers_us, advice.baseline_us);
    }
  }
}

// State in 8 bits gains a little more than one kernel for all parameters, and changes numbers.
TEST(AdviceOrder, OfTwoOptimizersTheOneThatKeepsNumbersIsTaken) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 2;
  config.batch = 2;
  set_sequence(config, 128);
  config.training.optimizer = TrainingOptions::Optimizer::kAdamW;
  const Advice advice =
      advice_of(build_gpt(config).value(), "a100-sxm-80gb", {.allow = {"optimizer"}});
  ASSERT_EQ(advice.combination.size(), 1U);
  EXPECT_EQ(advice.combination[0].rewrite, "--optimizer fused");
  EXPECT_EQ(advice.combination[0].code,
            "optimizer = torch.optim.AdamW(model.parameters(), fused=True)");
}

TEST(AdviceOrder, ConvolutionsInHalfPrecisionBecomeChannelsLast) {
  ResnetConfig config = resnet_preset("resnet50").value();
  config.batch = 64;
  const ExecutionGraph graph = rewrite_precision(build_resnet(config).value(),
                                                 {.precision = PrecisionOptions::Precision::kBf16})
                                   .value();
  const Advice advice = advice_of(graph, "a100-sxm-80gb", {.allow = {"channels-last", "compile"}});
  const auto last = std::ranges::find(advice.combination, "channels-last", &CombinedStep::family);
  ASSERT_NE(last, advice.combination.end());
  EXPECT_THAT(last->code, HasSubstr("model.to(memory_format=torch.channels_last)"));
  EXPECT_TRUE(last->same_numbers);
}

TEST(AttentionSupport, KernelsOfAttentionNeedAGpuThatHasThem) {
  struct Row {
    const char *kernel, *gpu, *why;
  };
  for (const Row& row : {Row{"flash", "a100-sxm-80gb", ""},
                         {"flash", "v100-sxm2-16gb", "needs sm_80 or later"},
                         {"cudnn", "t4", "needs sm_80 or later"},
                         {"efficient", "t4", ""},
                         {"flash", "mi300x", ""},
                         {"cudnn", "mi300x", "has no cuDNN"},
                         {"flash", "mi100", "no fused attention for gfx908"}}) {
    EXPECT_THAT(lacks_attention(row.kernel, gpu_called(row.gpu)), HasSubstr(row.why)) << row.gpu;
    EXPECT_EQ(lacks_attention(row.kernel, gpu_called(row.gpu)).empty(), *row.why == '\0')
        << row.gpu;
  }
}

}  // namespace advice_order_test
}  // namespace perfmodel
