// FLOP, peak and tokens of a step.
#include "explain/step_work.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel {
namespace step_work_test {

Gpu gpu(std::string_view name) {
  return find_gpu(name, std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus").value();
}

GptConfig small_gpt() {
  GptConfig config = *gpt_preset("gpt2");
  config.layers = 2;
  config.batch = 4;
  config.sequence = 128;
  return config;
}

TEST(StepWork, CountsTheProductsThatTheGraphHolds) {
  for (const ExecutionGraph& graph :
       {build_gpt(small_gpt()).value(), build_resnet(*resnet_preset("resnet18")).value(),
        build_dlrm(*dlrm_preset("mlperf")).value(),
        build_lstm(*lstm_preset("ptb-medium")).value()}) {
    const double flop = step_work(graph, gpu("a100-sxm-40gb"), {}).products.value;
    EXPECT_GT(flop, 0);
    EXPECT_NEAR(flop / model_size(graph).matrix_flop, 1, 1e-12);
  }
}

TEST(StepWork, KnowsThePartOfConvolutions) {
  const StepWork resnet =
      step_work(build_resnet(*resnet_preset("resnet18")).value(), gpu("t4"), {});
  EXPECT_LT(resnet.convolutions.value, resnet.products.value);  // plus a linear layer
  EXPECT_GT(resnet.convolutions.value, 0.99 * resnet.products.value);
  EXPECT_EQ(step_work(build_gpt(small_gpt()).value(), gpu("t4"), {}).convolutions.value, 0);
}

TEST(StepWork, CountsOnceWhatCheckpointsComputeTwice) {
  const ExecutionGraph plain = build_gpt(small_gpt()).value();
  const ExecutionGraph twice = rewrite_checkpointing(plain, {}).value();
  EXPECT_GT(model_size(twice).matrix_flop, model_size(plain).matrix_flop);
  EXPECT_EQ(step_work(twice, gpu("t4"), {}).products.value,
            step_work(plain, gpu("t4"), {}).products.value);
}

// Causal attention with 12 heads of 64: two products forward and four backward, half of each; flash
// attention makes the scores again backward, which counts in model_size() alone.
TEST(StepWork, CountsOnceTheScoresThatFlashAttentionMakesTwice) {
  GptConfig config = small_gpt();
  config.attention = TransformerConfig::Attention::kFlash;
  const ExecutionGraph graph = build_gpt(config).value();
  const double product = 2.0 * 4 * 12 * 128 * 128 * 64 / 2;
  const double made = step_work(graph, gpu("h100-sxm-80gb"), {}).products.value;
  EXPECT_NEAR((model_size(graph).matrix_flop - made) / (2 * product), 1, 1e-9);
}

TEST(StepWork, NamesThePeakOfTheTypeOfMostProducts) {
  struct Case {
    const char *gpu, *peak;
    double tflop_per_s;
  };
  const ExecutionGraph fp32 = build_gpt(small_gpt()).value();
  const ExecutionGraph bf16 =
      rewrite_precision(fp32, {.precision = PrecisionOptions::Precision::kBf16}).value();
  for (const auto& [name, peak, rate] : {Case{"v100-sxm2-32gb", "fp32", 15.67},
                                         {"h100-sxm-80gb", "fp32", 66.91},
                                         {"mi300x", "fp32 matrix cores", 163.4}}) {
    const StepWork work = step_work(fp32, gpu(name), {});
    EXPECT_EQ(work.peak_name, peak) << name;
    EXPECT_NEAR(work.peak.value / 1e12, rate, 0.01) << name;
  }
  for (const auto& [name, peak, rate] : {Case{"h100-sxm-80gb", "bf16 tensor cores", 989.4},
                                         {"mi300x", "bf16 matrix cores", 1307.4},
                                         {"p100-pcie-16gb", "fp32", 9.34}}) {
    const StepWork work = step_work(bf16, gpu(name), {});
    EXPECT_EQ(work.peak_name, peak) << name;
    EXPECT_NEAR(work.peak.value / 1e12, rate, 0.1) << name;
  }
}

TEST(StepWork, TellsTokensWhereTheGraphHasASequence) {
  const ExecutionGraph gpt = build_gpt(small_gpt()).value();
  EXPECT_EQ(step_work(gpt, gpu("t4"), 4).tokens, 128);
  EXPECT_EQ(step_work(gpt, gpu("t4"), {}).tokens, std::nullopt);  // the batch is not known
  EXPECT_EQ(step_work(gpt, gpu("t4"), 5).tokens, std::nullopt);
  const LstmConfig lstm = *lstm_preset("ptb-medium");
  EXPECT_EQ(step_work(build_lstm(lstm).value(), gpu("t4"), lstm.batch).tokens, lstm.steps);
  // Two lengths, no lookups, and lookups without a sequence.
  const T5Config t5 = *t5_preset("t5-small");
  EXPECT_EQ(step_work(build_t5(t5).value(), gpu("t4"), t5.batch).tokens, std::nullopt);
  const ResnetConfig resnet = *resnet_preset("resnet18");
  EXPECT_EQ(step_work(build_resnet(resnet).value(), gpu("t4"), resnet.batch).tokens, std::nullopt);
  const DlrmConfig dlrm = *dlrm_preset("mlperf");
  EXPECT_EQ(step_work(build_dlrm(dlrm).value(), gpu("t4"), dlrm.batch).tokens, std::nullopt);
}

TEST(StepWork, OfNoProductsIsNothing) {
  const StepWork work = step_work(ExecutionGraph{}, gpu("t4"), {});
  EXPECT_EQ(work.products.value, 0);
  EXPECT_EQ(work.peak.value, 0);
  EXPECT_EQ(work.peak_name, "");
}

}  // namespace step_work_test
}  // namespace perfmodel
