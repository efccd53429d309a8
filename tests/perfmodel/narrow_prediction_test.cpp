// Effects of fp8, fp4 and experts on a prediction.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/predict.hpp"

namespace perfmodel {
namespace narrow_prediction_test {

using Precision = PrecisionOptions::Precision;
using Scaling = PrecisionOptions::Scaling;

class NarrowPrediction : public testing::Test {
 protected:
  NarrowPrediction() {
    table_ = read_overheads(data() / "overheads" / "reference.json").value();
    h100_ = gpu("h100-sxm-80gb");
  }
  static std::filesystem::path data() {
    return std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";
  }
  static Gpu gpu(std::string_view name) { return find_gpu(name, data() / "gpus").value(); }

  // Two layers of Llama 3 8B.
  static LlamaConfig config() {
    LlamaConfig made = llama_preset("llama3-8b").value();
    made.layers = 2;
    made.sequence = 4096;
    made.vocabulary = 32000;
    made.attention = TransformerConfig::Attention::kFlash;
    return made;
  }
  static ExecutionGraph graph(const LlamaConfig& made, const PrecisionOptions& options) {
    return rewrite_precision(build_llama(made).value(), options).value();
  }
  Prediction predicted(const ExecutionGraph& graph, const Gpu& on) const {
    return predict(graph, on, table_).value();
  }
  Prediction predicted(ExecutionGraph&&, const Gpu&) const = delete;

  OverheadTable table_;
  Gpu h100_;
};

TEST_F(NarrowPrediction, EverythingIsPriced) {
  LlamaConfig experts = config();
  experts.experts = {.experts = 8, .top_k = 2, .hidden = 7168, .balance_loss = 0.01};
  for (const PrecisionOptions& options :
       {PrecisionOptions{Precision::kBf16}, PrecisionOptions{Precision::kFp8},
        PrecisionOptions{Precision::kFp8, Scaling::kCurrent},
        PrecisionOptions{Precision::kFp8, Scaling::kBlock128},
        PrecisionOptions{Precision::kFp4, Scaling::kNv16}}) {
    for (const LlamaConfig& one : {config(), experts}) {
      const ExecutionGraph made = graph(one, options);
      const Prediction prediction = predicted(made, gpu("b200-sxm-180gb"));
      EXPECT_THAT(prediction.coverage.unmodelled_ops, testing::IsEmpty());
      EXPECT_GT(prediction.kernel_sum_us, 0);
    }
  }
}

TEST_F(NarrowPrediction, LargeLayersAreNotSlowerInEightBits) {
  const ExecutionGraph half = graph(config(), {.precision = Precision::kBf16});
  const Prediction before = predicted(half, h100_);
  double delayed = 0;
  for (const Scaling scaling :
       {Scaling::kDelayed, Scaling::kCurrent, Scaling::kToken, Scaling::kMx}) {
    const ExecutionGraph narrow = graph(config(), {Precision::kFp8, scaling});
    const Prediction after = predicted(narrow, h100_);
    EXPECT_LT(after.kernel_sum_us, before.kernel_sum_us) << static_cast<int>(scaling);
    if (scaling == Scaling::kDelayed) delayed = after.kernel_sum_us;
    // The largest magnitudes are found by kernels of their own.
    if (scaling == Scaling::kCurrent) {
      EXPECT_GT(after.kernel_sum_us, delayed);
    }
  }
}

TEST_F(NarrowPrediction, TypesThatAGpuLacksAreSaidFirst) {
  const ExecutionGraph narrow = graph(config(), {.precision = Precision::kFp8});
  const ExecutionGraph narrower =
      graph(config(), {.precision = Precision::kFp4, .scaling = Scaling::kNv16});
  const auto first = [&](const ExecutionGraph& made, std::string_view name) {
    const Prediction prediction = predicted(made, gpu(name));
    return prediction.warnings.empty() ? std::string() : prediction.warnings.front();
  };
  const auto lacks = [](const std::string& name, const std::string& type) {
    return testing::AllOf(testing::StartsWith(name + " has no matrix units for " + type + ": "),
                          testing::HasSubstr("42 "));
  };
  // The first one is about its kernels of attention.
  EXPECT_THAT(predicted(narrow, gpu("v100-sxm2-32gb")).warnings.at(1),
              lacks("v100-sxm2-32gb", "float8"));
  EXPECT_THAT(first(narrow, "a100-sxm-80gb"), lacks("a100-sxm-80gb", "float8"));
  EXPECT_THAT(first(narrower, "h100-sxm-80gb"), lacks("h100-sxm-80gb", "float4"));
  EXPECT_THAT(first(narrow, "h100-sxm-80gb"), testing::Not(testing::HasSubstr("matrix units")));
  EXPECT_THAT(first(narrower, "b200-sxm-180gb"), testing::Not(testing::HasSubstr("matrix units")));
  EXPECT_GE(predicted(narrow, gpu("v100-sxm2-32gb")).coverage.kernels_out_of_range, 42U);
}

TEST_F(NarrowPrediction, TwiceTheBatchIsTwiceTheWork) {
  LlamaConfig experts = config();
  experts.experts = {.experts = 8, .top_k = 2, .hidden = 7168};
  for (const LlamaConfig& one : {config(), experts}) {
    LlamaConfig plain = one;
    plain.training.optimizer = TrainingOptions::Optimizer::kNoOptimizer;
    const ExecutionGraph narrow = graph(plain, {.precision = Precision::kFp8});
    const ExecutionGraph twice = set_batch_size(narrow, {.batch = 2}).value();
    const double once_us = predicted(narrow, h100_).kernel_sum_us;
    const double twice_us = predicted(twice, h100_).kernel_sum_us;
    EXPECT_GT(twice_us, 1.7 * once_us);  // weights are quantised and gradients converted once
    EXPECT_LT(twice_us, 2.1 * once_us);
  }
}

// One expert per token of the width of the dense layer: its FLOP, routing, and the weights of all
// experts, which the optimizer (left out) and the conversions of parameters and gradients see.
TEST_F(NarrowPrediction, OneExpertPerTokenCostsADenseLayerAndItsRouting) {
  LlamaConfig dense = config();
  dense.training.optimizer = TrainingOptions::Optimizer::kNoOptimizer;
  LlamaConfig sparse = dense;
  sparse.experts = {.experts = 8, .top_k = 1};
  const ExecutionGraph one = graph(dense, {.precision = Precision::kBf16});
  const ExecutionGraph eight = graph(sparse, {.precision = Precision::kBf16});
  const Prediction before = predicted(one, h100_), after = predicted(eight, h100_);
  // Conversions: fp32 to bf16 of 7 more experts, 3 H F each, read and written in both passes.
  const double more = 7.0 * 3 * 4096 * 14336 * 2;  // layers
  const double conversions_us = more * (6 + 6) / (0.9 * h100_.dram_bandwidth.value) * 1e6;
  EXPECT_GT(after.kernel_sum_us, before.kernel_sum_us);
  EXPECT_LT(after.kernel_sum_us, 1.4 * before.kernel_sum_us + 1.1 * conversions_us);
}

}  // namespace narrow_prediction_test
}  // namespace perfmodel
