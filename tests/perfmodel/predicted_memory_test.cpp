#include "perfmodel/detail/predicted_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "memory/step_memory.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/build_transformers.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "predictor_cases.hpp"

namespace perfmodel {
namespace predicted_memory_test {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kGib = 1 << 30;

Gpu gpu_of(double gib) {
  Gpu gpu;
  gpu.name = "small-gpu";
  gpu.dram_gb = gib;
  return gpu;
}

TEST(PredictedMemory, FsdpDividesByTheRanks) {
  GptConfig config = gpt_preset("gpt2").value();
  config.layers = 2;
  config.training.optimizer = TrainingOptions::Optimizer::kAdamW;
  const ExecutionGraph graph = build_gpt(config).value();
  const MemoryPlan plan = memory_plan(graph);
  const Gpu gpu = gpu_of(16);
  const ScaledOut ddp{.strategy = ParallelStrategy::kDdp, .world = 4};
  const ScaledOut fsdp{
      .strategy = ParallelStrategy::kFsdp, .world = 4, .gathered_bytes = 300 << 20};
  const ScaledOut own{.strategy = ParallelStrategy::kFsdp, .world = 4, .own_collectives = true};
  const PredictedMemory alone = step_memory(plan, graph, {}, &gpu);
  EXPECT_EQ(step_memory(plan, graph, rank_share(ddp), &gpu).needed_bytes(), alone.needed_bytes());
  EXPECT_EQ(step_memory(plan, graph, rank_share(own), &gpu).needed_bytes(), alone.needed_bytes());
  const PredictedMemory shard = step_memory(plan, graph, rank_share(fsdp), &gpu);
  EXPECT_NEAR(shard.static_bytes(), alone.static_bytes() / 4, 1e3);
  EXPECT_NEAR(shard.held.optimizer_state, alone.held.optimizer_state / 4, 1e3);
  EXPECT_EQ(shard.activation_bytes, alone.activation_bytes);
  EXPECT_EQ(at(shard.by_purpose, MemoryPurpose::kCommunication), 300 << 20);
}

TEST(PredictedMemory, WarnsOnlyOfWhatCannotFit) {
  PredictedMemory memory{.peak_allocated_bytes = 15 * kGib,
                         .peak_reserved_bytes = 15.5 * kGib,
                         .context_bytes = 0.5 * kGib,
                         .device_bytes = 16 * kGib};
  at(memory.by_purpose, MemoryPurpose::kWeights) = 12 * kGib;
  at(memory.by_purpose, MemoryPurpose::kActivations) = 3 * kGib;
  at(memory.by_purpose, MemoryPurpose::kReserve) = 1 * kGib;
  EXPECT_EQ(memory_warning(memory, gpu_of(16)), "");
  memory.device_bytes = 15 * kGib;
  EXPECT_EQ(memory_warning(memory, gpu_of(15)),
            "the step does not fit into small-gpu by 1 GiB: it needs 16 GiB of 15 GiB: weights 12, "
            "activations 3, reserve 1");
}

class MemoryOfPredictions : public ::testing::Test {
 protected:
  Predictor predictor_ = Predictor::load(test_support::few_gpus()).value();
};

TEST_F(MemoryOfPredictions, Gpt3DoesNotFitIntoAT4) {
  GptConfig config = gpt_preset("gpt3-175b").value();
  config.layers = 4;  // 7.9 billion of its parameters
  const auto job = predictor_.prepare(build_gpt(config).value()).value();
  const auto alone = predictor_.predict(job, "t4").value();
  EXPECT_FALSE(alone.memory.fits());
  EXPECT_LE(alone.memory.device_bytes, 16 * kGib);
  EXPECT_GT(alone.memory.static_bytes(), 100 * kGib);  // 16 bytes per parameter
  EXPECT_THAT(alone.warnings, ::testing::Contains(HasSubstr("the step does not fit into t4")));
  const auto sharded =
      predictor_.predict(job, "t4", {.world = 64, .strategy = ParallelStrategy::kFsdp}).value();
  EXPECT_NEAR(sharded.memory.static_bytes(), alone.memory.static_bytes() / 64, 1e4);
  // Its activations are whole, and units of parameters are gathered: too much for a T4 still.
  EXPECT_EQ(sharded.memory.activation_bytes, alone.memory.activation_bytes);
  EXPECT_FALSE(sharded.memory.fits());
  const auto on_h100 =
      predictor_.predict(job, "h100-sxm-80gb", {.world = 64, .strategy = ParallelStrategy::kFsdp});
  EXPECT_THAT(on_h100.value().warnings, Not(::testing::Contains(HasSubstr("does not fit"))));
}

TEST_F(MemoryOfPredictions, LargeTablesDoNotFitWhateverTheBatch) {
  const DlrmConfig config = dlrm_preset("mlperf").value();  // 26 tables, 96 GB in fp32
  const ExecutionGraph graph = build_dlrm(config).value();
  const auto job = predictor_.prepare(graph).value();
  const auto whole = predictor_.predict(graph, "a100-sxm-40gb").value();
  EXPECT_GT(whole.memory.held.tables, 90e9);
  EXPECT_LT(whole.memory.held.gradients, 1e9);  // gradients of the tables are sparse
  EXPECT_THAT(whole.warnings, ::testing::Contains(HasSubstr("does not fit into a100-sxm-40gb")));
  for (const std::int64_t batch : {64, 2048, 65'536}) {
    const auto resized = predictor_.predict(job, "a100-sxm-40gb", {.batch = batch}).value();
    EXPECT_EQ(resized.memory.static_bytes(), whole.memory.static_bytes());
    // A Predictor knows as much of a graph in other sizes as of that graph itself.
    const auto alone =
        predictor_.predict(set_batch_size(graph, {.batch = batch}).value(), "a100-sxm-40gb")
            .value();
    EXPECT_EQ(resized.memory.needed_bytes(), alone.memory.needed_bytes());
    EXPECT_EQ(resized.memory.activation_bytes, alone.memory.activation_bytes);
  }
}

TEST_F(MemoryOfPredictions, SamplesAreThoseOfTheWholeJob) {
  const auto job = predictor_.prepare(build_dlrm(dlrm_preset("ddp").value()).value()).value();
  const auto one = predictor_.predict(job, "t4", {.batch = 512}).value();
  EXPECT_EQ(one.ranks, 1);
  EXPECT_EQ(one.batch, 512);
  EXPECT_DOUBLE_EQ(one.samples_per_s().value(), 512e6 / one.e2e_us);
  EXPECT_EQ(one.samples_per_s_per_gpu(), one.samples_per_s());
  const auto eight =
      predictor_.predict(job, "t4", {.batch = 512, .world = 8, .strategy = ParallelStrategy::kDdp})
          .value();
  EXPECT_EQ(eight.ranks, 8);
  EXPECT_DOUBLE_EQ(eight.samples_per_s().value(), 8 * 512e6 / eight.e2e_us);
  EXPECT_DOUBLE_EQ(eight.samples_per_s_per_gpu().value(), 512e6 / eight.e2e_us);
  // A graph of one rank that reduces its gradients itself.
  TorchrecDlrmConfig torchrec = torchrec_dlrm_preset("v100-8").value();
  const ExecutionGraph graph = build_torchrec_dlrm(torchrec).value();
  EXPECT_EQ(predictor_.predict(graph, "t4").value().samples_per_s(), std::nullopt);
  const auto rank = predictor_.predict(predictor_.prepare(graph).value(), "t4").value();
  EXPECT_EQ(rank.ranks, torchrec.world_size);
  EXPECT_EQ(rank.batch, torchrec.batch_per_rank);
}

}  // namespace predicted_memory_test
}  // namespace perfmodel
