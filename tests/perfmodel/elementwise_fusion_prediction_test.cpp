// Cost of fused pointwise ops, against the same ops apart.
#include <gtest/gtest.h>

#include <filesystem>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/fusion.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictors/detail/lower.hpp"

namespace perfmodel {
namespace elementwise_fusion_prediction_test {

std::filesystem::path data() { return std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data"; }

template <class Config>
Config small(Config config) {
  config.layers = 2;
  config.batch = 4;
  config.sequence = 512;
  return config;
}

ExecutionGraph bert() { return build_bert(small(*bert_preset("bert-base"))).value(); }
ExecutionGraph gpt() { return build_gpt(small(*gpt_preset("gpt2"))).value(); }
ExecutionGraph llama() { return build_llama(small(*llama_preset(llama_presets()[0]))).value(); }
ExecutionGraph t5() { return build_t5(*t5_preset("t5-small")).value(); }
ExecutionGraph resnet() { return build_resnet(*resnet_preset("resnet18")).value(); }

struct Work {
  double flop = 0, read = 0, written = 0;
  std::size_t kernels = 0;
};

// Work that all ops of a graph launch.
Work work(const ExecutionGraph& graph) {
  const Gpu gpu = find_gpu("a100-sxm-40gb", data() / "gpus").value();
  Lowering lowering(graph, gpu, nullptr);
  Work sum;
  for (std::int32_t op : top_level_ops(graph)) {
    for (const KernelWork& kernel : lowering.lower(op).work) {
      sum.flop += kernel.flop.value;
      sum.read += kernel.bytes_read.value;
      sum.written += kernel.bytes_written.value;
      ++sum.kernels;
    }
  }
  return sum;
}

class FusedPrediction : public testing::TestWithParam<ExecutionGraph (*)()> {};

TEST_P(FusedPrediction, MovesLessAndComputesTheSame) {
  const ExecutionGraph before = GetParam()();
  const Work apart = work(before), together = work(*rewrite_elementwise_fusion(before));
  EXPECT_LT(together.read, apart.read);
  EXPECT_LT(together.written, apart.written);
  EXPECT_LT(together.kernels, apart.kernels);
  // Triton keeps one of the four numbers that it draws for a dropout.
  EXPECT_GE(together.flop / apart.flop, 1 - 1e-12);
  EXPECT_LE(together.flop / apart.flop, 1.02);
}

TEST_P(FusedPrediction, IsFaster) {
  const OverheadTable table = read_overheads(data() / "overheads" / "reference.json").value();
  const ExecutionGraph before = GetParam()(), after = *rewrite_elementwise_fusion(before);
  for (const char* name : {"v100-sxm2-16gb", "a100-sxm-40gb", "h100-sxm-80gb", "mi300x"}) {
    const Gpu gpu = find_gpu(name, data() / "gpus").value();
    const auto apart = predict(before, gpu, table).value();
    const auto together = predict(after, gpu, table).value();
    EXPECT_LT(together.gpu_active_us, apart.gpu_active_us) << name;
    EXPECT_LT(together.e2e_us, apart.e2e_us) << name;
    EXPECT_EQ(together.coverage.unmodelled_ops.size(), apart.coverage.unmodelled_ops.size());
  }
}

// Epilogues do the work of the loops that they replace, without the way through memory.
TEST(EpiloguePrediction, MovesLessAndComputesTheSame) {
  const auto compiled = [](CompileMode mode) {
    return work(rewrite_compiled(gpt(), {.mode = mode}).value());
  };
  const Work apart = compiled(CompileMode::kReduceOverhead),
             together = compiled(CompileMode::kMaxAutotune);
  EXPECT_LT(together.kernels, apart.kernels);
  EXPECT_LT(together.read, apart.read);
  EXPECT_LT(together.written, apart.written);
  EXPECT_NEAR(together.flop / apart.flop, 1, 0.001);
}

INSTANTIATE_TEST_SUITE_P(Models, FusedPrediction, testing::Values(bert, gpt, llama, t5, resnet));

}  // namespace elementwise_fusion_prediction_test
}  // namespace perfmodel
