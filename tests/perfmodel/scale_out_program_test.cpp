// Turns a program of one rank into the program of one among many.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../predictors/graph_fixture.hpp"
#include "program/add_scale_out.hpp"
#include "program/fsdp_program.hpp"

namespace perfmodel {
namespace scale_out_program_test {

using test_support::round_gpu;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// ---- recorded collectives
// --------------------------------------------------------------------------

// A program of one op that launches an all-reduce between two ranks.
class RecordedCollective : public ::testing::Test {
 protected:
  RecordedCollective() {
    graph_.nodes.resize(1);
    graph_.nodes[0].parent = -1;
    const KernelWork work{
        .family = KernelFamily::kCollective,
        .bytes_read = Bytes{8e6},
        .bytes_written = Bytes{8e6},
        .shape = CollectiveShape{.kind = "all_reduce", .world_size = 2, .ranks = {0, 1}}};
    HostProgram& program = lowered_.program;
    program.steps.resize(1);
    program.items.push_back({.node = 0, .subject = 0, .kernels = 1});
    program.kernels.push_back({.family = KernelFamily::kCollective});
    program.comm_works.push_back(work);
    program.instructions.push_back({.what = Launch{.collective = program.add({.work = 0})}});
    lowered_.questions.push_back({.work = work, .node = 0});
  }

  Result<void> scale_out(ScaleOut how) {
    return add_scale_out(graph_, round_gpu(), {}, how, true, lowered_);
  }
  const CollectiveShape& asked() const {
    return std::get<CollectiveShape>(lowered_.questions[0].work.shape);
  }

  ExecutionGraph graph_;
  LoweredProgram lowered_;
};

TEST_F(RecordedCollective, IsAskedForAmongAllRanks) {
  ASSERT_TRUE(scale_out({.world = 16}));
  EXPECT_EQ(asked().world_size, 16);
  EXPECT_TRUE(asked().ranks.empty());
  EXPECT_TRUE(lowered_.questions[0].of_job);
  EXPECT_NE(lowered_.job_collectives, nullptr);
  EXPECT_EQ(lowered_.program.scaled_out->collectives, 1u);
  EXPECT_TRUE(lowered_.program.scaled_out->own_collectives);
}

TEST_F(RecordedCollective, KeepsItsTracedTime) {
  const KernelTimes::Time traced{.us = 7};
  lowered_.questions[0].traced = &traced;
  ASSERT_TRUE(scale_out({.world = 16}));
  EXPECT_EQ(asked().world_size, 2);
  EXPECT_FALSE(lowered_.questions[0].of_job);
}

TEST_F(RecordedCollective, KeepsTheTimeThatItsNodeSays) {
  graph_.nodes[0].kernel_time_us = 7;
  lowered_.nodes_say_times = true;
  ASSERT_TRUE(scale_out({.world = 16}));
  EXPECT_FALSE(lowered_.questions[0].of_job);
}

TEST_F(RecordedCollective, LeavesNothingToFsdp) {
  const auto done = scale_out({.world = 16, .strategy = ParallelStrategy::kFsdp});
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message, HasSubstr("expected a graph without collectives"));
}

TEST_F(RecordedCollective, NeedsAWorld) {
  EXPECT_FALSE(scale_out({.world = 0}));
  EXPECT_FALSE(scale_out({.world = (std::int64_t{1} << 20) + 1}));
  EXPECT_FALSE(scale_out({.world = 2, .interference = 0.9}));
}

// ---- FSDP
// ------------------------------------------------------------------------------------------

TEST(FsdpUnits, AreCutInForwardOrderWhereTheyAreLargeEnough) {
  // Gradients come in the order of the backward pass.
  const auto units = fsdp_units({{.item = 7, .producer = 6, .forward = 2, .bytes = 60},
                                 {.item = 9, .producer = 8, .forward = 1, .bytes = 60},
                                 {.item = 11, .producer = 10, .forward = 0, .bytes = 60}},
                                100, "graph.json");
  ASSERT_TRUE(units);
  ASSERT_EQ(units->size(), 2u);
  EXPECT_EQ(units->at(0).bytes, 120);
  EXPECT_EQ(units->at(0).parameters, 2u);
  EXPECT_EQ(units->at(0).forward_begin, 0);
  EXPECT_EQ(units->at(0).forward_end, 1);
  EXPECT_EQ(units->at(0).backward_begin, 8);
  EXPECT_EQ(units->at(0).backward_end, 11);
  EXPECT_EQ(units->at(1).bytes, 60);
}

TEST(FsdpUnits, NeedTheForwardOpOfEachGradient) {
  const auto units = fsdp_units({{.item = 7, .bytes = 60}}, 100, "graph.json");
  ASSERT_FALSE(units);
  EXPECT_THAT(units.error().message, HasSubstr("graph.json"));
}

// Two ops of the main thread: a forward one and a gradient.
class OneUnit : public ::testing::Test {
 protected:
  OneUnit() {
    lowered_.program.steps.resize(1);
    lowered_.program.phases = {{.label = "backward"}, {.label = "Optimizer.step"}};
    for (std::int32_t item = 0; item < 2; ++item) {
      lowered_.program.items.push_back({.node = item, .subject = item});
      lowered_.program.instructions.push_back({.item = item, .what = HostWork{.us = 1}});
    }
  }

  // Work for the device, in order.
  std::vector<std::string> kernels() const {
    std::vector<std::string> names;
    for (const Instruction& at : lowered_.program.instructions) {
      const Launch* launch = launch_of(at);
      if (launch) names.push_back(lowered_.program.kernel(*launch).name);
    }
    return names;
  }

  const Gpu gpu_ = round_gpu();
  const OverheadTable table_;
  LoweredProgram lowered_;
};

TEST_F(OneUnit, IsGatheredBeforeItsForwardOpAndReducedBehindItsGradient) {
  const std::vector<StepGradient> gradients = {
      {.item = 1, .producer = 0, .forward = 0, .bytes = 64}};
  const ScaleOut how{.world = 8, .strategy = ParallelStrategy::kFsdp};
  AddedOps ops(gpu_, table_, lowered_);
  add_fsdp_step(gradients, fsdp_units(gradients, 100, "").value(), how, ops);
  ops.splice();
  // 8 ranks: gradients are divided by 4 before the sum and by 2 after it.
  EXPECT_THAT(kernels(),
              ElementsAre("nccl:all_gather", "fsdp: gradients to flat", "fsdp: pre-divide",
                          "nccl:reduce_scatter", "fsdp: post-divide"));
  ASSERT_EQ(lowered_.questions.size(), 5u);
  EXPECT_EQ(lowered_.questions[0].work.bytes_read.value, 8);  // a shard
  EXPECT_EQ(lowered_.questions[0].work.bytes_written.value, 64);
  EXPECT_EQ(lowered_.questions[4].work.bytes_read.value, 8);
  EXPECT_TRUE(lowered_.questions[0].of_job);
  EXPECT_FALSE(lowered_.questions[1].of_job);
  EXPECT_EQ(ops.collectives(), 2u);
}

TEST_F(OneUnit, LeavesTheOptimizerAShare) {
  lowered_.program.items.push_back({.node = 2, .subject = 2, .phase = 1, .kernels = 1});
  lowered_.program.kernels.resize(1);
  lowered_.questions.resize(1);
  lowered_.program.instructions.push_back({.item = 2, .what = Launch{}});
  shard_optimizer(1, 8, lowered_);
  EXPECT_EQ(lowered_.questions[0].share, 1. / 8);
  lowered_.questions[0].share = 1;
  shard_optimizer(2, 8, lowered_);  // the op comes before the last gradient
  EXPECT_EQ(lowered_.questions[0].share, 1);
}

}  // namespace scale_out_program_test
}  // namespace perfmodel
