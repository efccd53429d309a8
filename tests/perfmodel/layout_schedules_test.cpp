// Schedules of layouts against closed forms.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "../scratch.hpp"
#include "layout/framework.hpp"
#include "layout/pipeline_sweep.hpp"
#include "layout/step_bytes.hpp"
#include "layout/step_time.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"
#include "predictor_cases.hpp"

namespace perfmodel {
namespace layout_schedules_test {

using parallel::PipelineSchedule;
using parallel::PipelineTimes;

/// Stages that differ.
PipelineTimes random_stages(std::int64_t p, std::int64_t m, std::vector<double>& forward,
                            std::vector<double>& backward, std::mt19937& random) {
  std::uniform_real_distribution<double> us(1, 20);
  for (auto* times : {&forward, &backward}) {
    times->resize(static_cast<std::size_t>(p));
    for (double& time : *times) time = us(random);
  }
  return {.schedule = PipelineSchedule::k1F1B,
          .stages = p,
          .microbatches = m,
          .forward_us = forward,
          .backward_us = backward,
          .hop_us = 0.1 * us(random)};
}

TEST(PipelineEnds, ContinueAtThePaceOfManyMicrobatches) {
  std::mt19937 random(2);
  for (int i = 0; i < 40; ++i) {
    const std::int64_t p = 2 + static_cast<std::int64_t>(random() % 6), m = 30 * p;
    std::vector<double> forward, backward;
    const PipelineTimes times = random_stages(p, m, forward, backward, random);
    const double all = parallel::pipeline_ends(times).makespan_us;
    const double continued = parallel::pipeline_ends(times, 0).makespan_us;
    EXPECT_NEAR(continued, all, 0.01 * all);
  }
}

// (m + p - 1)(F + B); interleaved m(F + B) + (p - 1)(F + B)/v with F and B per stage.
TEST(PipelineEnds, EqualStagesMeetTheClosedForms) {
  const std::vector<double> forward(12, 2), backward(12, 4);
  const auto makespan = [&](PipelineSchedule schedule, std::int64_t p, std::int64_t v) {
    return parallel::pipeline_ends({.schedule = schedule,
                                    .stages = p,
                                    .chunks = v,
                                    .microbatches = 8,
                                    .forward_us = forward,
                                    .backward_us = backward})
        .makespan_us;
  };
  EXPECT_DOUBLE_EQ(makespan(PipelineSchedule::k1F1B, 4, 1), (8 + 3) * 6.0);
  EXPECT_DOUBLE_EQ(makespan(PipelineSchedule::kGpipe, 4, 1), (8 + 3) * 6.0);
  EXPECT_DOUBLE_EQ(makespan(PipelineSchedule::kInterleaved, 4, 3), 8 * 18.0 + 3 * 6.0);
}

TEST(SpreadLayers, EqualPartsAndWhatIsLeftBehindTheFirst) {
  DecoderModel model;
  model.layers = 10;
  const auto spread = spread_layers(model, 4, false);
  ASSERT_TRUE(spread) << to_string(spread.error());
  EXPECT_EQ((*spread)[0].layers, 2);
  EXPECT_EQ((*spread)[1].layers, 3);
  EXPECT_EQ((*spread)[2].layers, 3);
  EXPECT_EQ((*spread)[3].layers, 2);
  EXPECT_TRUE((*spread)[0].embeds);
  EXPECT_TRUE((*spread)[3].heads && (*spread)[3].loses);
  EXPECT_FALSE((*spread)[0].heads);
  const auto too_many = spread_layers(model, 11, false);
  ASSERT_FALSE(too_many);
  EXPECT_NE(too_many.error().message.find("10 layers for 11 chunks"), std::string::npos);
}

// Products of a layer 4 h h + 3 h f = 16 h h with f = 4 h; the head's V h are four layers. A stage
// is full at a quarter of the 20: five layers, the last one has one layer and the head.
TEST(SpreadLayers, BalancedStagesCountTheOutputLayer) {
  DecoderModel model{.layers = 16, .hidden = 64, .heads = 4, .feed_forward = 256};
  model.vocabulary = 4 * 16 * 64;
  const auto spread = spread_layers(model, 4, true);
  ASSERT_TRUE(spread) << to_string(spread.error());
  for (std::size_t stage = 0; stage < 3; ++stage) EXPECT_EQ((*spread)[stage].layers, 5);
  EXPECT_EQ((*spread)[3].layers, 1);
  EXPECT_TRUE((*spread)[3].heads && (*spread)[3].loses);
}

TEST(LiveChunks, AreThoseOfTheSchedules) {
  for (const auto& [order, v] : {std::pair(PipelineOrder::kGpipe, 1),
                                 {PipelineOrder::k1F1B, 1},
                                 {PipelineOrder::k1F1B, 3}}) {
    for (const std::int64_t m : {4, 8, 20}) {
      const std::int64_t p = 4;
      ParallelLayout layout;
      layout.pp = p;
      layout.vp = v;
      layout.order = order;
      const auto schedule = v > 1                            ? PipelineSchedule::kInterleaved
                            : order == PipelineOrder::kGpipe ? PipelineSchedule::kGpipe
                                                             : PipelineSchedule::k1F1B;
      for (std::int64_t stage = 0; stage < p; ++stage) {
        std::int64_t live = 0, peak = 0;
        const auto ops = parallel::pipeline_order(schedule, p, v, m, stage);
        for (const auto& op : *ops) {
          live += op.backward ? -1 : 1;
          peak = std::max(peak, live);
        }
        EXPECT_EQ(live_chunks(layout, m, stage), peak);
      }
    }
  }
}

/// A job of literal costs: layers of 10 + 20 us, a head of 3 + 6, and nothing else costs time.
struct LiteralJob {
  LayoutJob job;
  ParallelLayout layout;
  ShardCosts shard;
  Framework framework;
  Gpu gpu = find_gpu("h100-sxm-80gb", test_support::source_data() / "gpus").value();
  Topology topology = TopologyCatalog::builtin().find("hgx-h100").value();
  mutable std::optional<CollectiveTimes> collectives;

  LiteralJob() {
    job.model = {.layers = 8, .hidden = 64, .heads = 4, .feed_forward = 256, .vocabulary = 1024};
    job.sequence = 128;
    job.global_batch = 16;
    shard.layer.forward.kernel_us = 10;
    shard.layer.backward.kernel_us = 20;
    shard.head.forward.kernel_us = 3;
    shard.head.backward.kernel_us = 6;
    framework.accumulation_bytes = 0;
    framework.optimizer_bytes = 0;
  }
  StepQuestion question() const {
    collectives.emplace(topology);
    return {.job = &job,
            .layout = &layout,
            .shard = &shard,
            .framework = &framework,
            .gpu = &gpu,
            .collectives = &*collectives};
  }
  StepTime time() const {
    return step_time(question(), spread_layers(job.model, layout.pp * layout.vp, false).value())
        .value();
  }
  double term(const StepTime& time, LayoutTerm which) const {
    return time.terms_us[static_cast<std::size_t>(which)];
  }
};

TEST(StepTime, OneStageIsTheSumOfItsMicrobatches) {
  const LiteralJob literal;
  const StepTime time = literal.time();
  EXPECT_NEAR(literal.term(time, LayoutTerm::kCompute), 16 * (8 * 30 + 9), 1e-9);
  EXPECT_EQ(literal.term(time, LayoutTerm::kHost), 0);
  EXPECT_EQ(literal.term(time, LayoutTerm::kBubble), 0);
  double sum = 0;
  for (const double term : time.terms_us) sum += term;
  EXPECT_NEAR(time.step_us, sum, 1e-9);
}

// Four stages of two layers; the last also has the head: 16 x 69 us, and the others' pass of one
// microbatch, 3 x 60 us, is the bubble.
TEST(StepTime, StagesWaitForEachOtherOnce) {
  LiteralJob literal;
  literal.layout.pp = 4;
  literal.shard.boundary_bytes = 0;
  literal.topology.intra.p2p_bandwidth = {1e15};
  const StepTime time = literal.time();
  EXPECT_NEAR(literal.term(time, LayoutTerm::kCompute), 16 * 69, 1e-9);
  EXPECT_NEAR(literal.term(time, LayoutTerm::kBubble), 3 * 60, 1e-9);
}

// A step of two stages, two tensor-parallel ranks and two replicas, worked out by hand: 1F1B with
// four microbatches. The last stage never waits once it has begun (the first hands over the next
// microbatch 900 - 2 hops us before it is wanted), so the last backward pass of the first ends at
// F0 + hop + 4 (F1 + B1) + hop + B0; its one bucket of gradients is summed after that.
TEST(StepTime, TpPpDpIsTheSumByHand) {
  LiteralJob literal;
  literal.layout.tp = literal.layout.pp = literal.layout.dp = 2;
  literal.layout.micro_batch = 2;
  literal.shard.layer.forward = {.kernel_us = 1000, .comm_us = 200, .host_us = 100};
  literal.shard.layer.backward = {.kernel_us = 2000, .comm_us = 300, .host_us = 100};
  literal.shard.head.forward = {.kernel_us = 250, .comm_us = 50};
  literal.shard.head.backward = {.kernel_us = 500, .comm_us = 100};
  literal.shard.layer.parameters = 1e6;
  literal.shard.boundary_bytes = 2 * 128 * 64 * 2;
  literal.framework.optimizer_bytes = 34;
  literal.layout.zero = Sharding::kZero1;
  const double f0 = 4 * 1200, b0 = 4 * 2300, f1 = f0 + 300, b1 = b0 + 600;
  const auto collective = [&](CollectiveKind kind, double bytes) {
    return collective_time(literal.topology, {.kind = kind, .bytes = Bytes{bytes}, .ranks = 2})
        ->time.count();
  };
  const double hop = collective(CollectiveKind::kSend, 2 * 128 * 64 * 2);
  ASSERT_LT(2 * hop, 900);
  // 4 layers of 1e6 parameters: 16 MB of gradients are one bucket, 8 MB of weights come back.
  const double sums = collective(CollectiveKind::kReduceScatter, 16e6);
  const double weights = collective(CollectiveKind::kAllGather, 8e6);
  const double moved = 34 * 4e6 / 2;
  const KernelWork adam{.family = KernelFamily::kOptimizer,
                        .bytes_read = {0.6 * moved},
                        .bytes_written = {0.4 * moved}};
  const double optimizer = KernelModels::heuristic().price(adam, literal.gpu).time.count();
  const double step = f0 + hop + 4 * (f1 + b1) + hop + b0 + sums + optimizer + weights;
  const StepTime time = literal.time();
  EXPECT_NEAR(time.step_us, step, 1e-6 * step);
  EXPECT_NEAR(literal.term(time, LayoutTerm::kCompute), 4 * (4 * 3000 + 750), 1e-6);
  EXPECT_NEAR(literal.term(time, LayoutTerm::kTensorParallel), 4 * (4 * 500 + 150), 1e-6);
  EXPECT_NEAR(literal.term(time, LayoutTerm::kBubble), f0 + b0, 1e-6);
  EXPECT_NEAR(literal.term(time, LayoutTerm::kPipelineTransfers), 2 * hop, 1e-6);
  EXPECT_NEAR(literal.term(time, LayoutTerm::kDataParallel), sums + weights, 1e-6);
  EXPECT_NEAR(literal.term(time, LayoutTerm::kOptimizer), optimizer, 1e-6);
  EXPECT_EQ(literal.term(time, LayoutTerm::kHost), 0);
}

// Host time of a microbatch that cannot be hidden; with stages, pass by pass.
TEST(StepTime, AHostThatIsSlowerThanTheDeviceShows) {
  LiteralJob literal;
  literal.shard.layer.forward.host_us = 25;
  literal.shard.layer.backward.host_us = 15;
  const StepTime one = literal.time();
  EXPECT_NEAR(literal.term(one, LayoutTerm::kHost), 16 * (8 * 40 - (8 * 30 + 9)), 1e-9);
  literal.layout.pp = 2;
  const StepTime two = literal.time();  // the last stage: 4 x 25 - 43 forward, nothing backward
  EXPECT_NEAR(literal.term(two, LayoutTerm::kHost), 16 * (100 - 43), 1e-9);
}

TEST(StepTime, GradientsHideBehindTheLastBackwardPass) {
  LiteralJob literal;
  literal.layout.dp = 4;
  literal.shard.layer.parameters = 1e6;
  literal.shard.layer.backward.kernel_us = 2000;
  literal.framework.bucket_bytes = 1e12;
  literal.framework.overlap_gradients = false;
  const double alone = literal.term(literal.time(), LayoutTerm::kDataParallel);
  EXPECT_GT(alone, 0);
  literal.framework.bucket_bytes = 4e6;
  literal.framework.overlap_gradients = true;
  const double hidden = literal.term(literal.time(), LayoutTerm::kDataParallel);
  EXPECT_GT(hidden, 0);
  EXPECT_LT(hidden, alone);
  literal.layout.zero = Sharding::kZero1;  // gathers what it has updated, which nothing hides
  const auto gather = collective_time(
      literal.topology, {.kind = CollectiveKind::kAllGather, .bytes = Bytes{8e6 * 2}, .ranks = 4});
  ASSERT_TRUE(gather) << to_string(gather.error());
  EXPECT_GT(literal.term(literal.time(), LayoutTerm::kDataParallel), gather->time.count());
}

// Four ranks: 4 million parameters, 16 MB of gradients in fp32.
TEST(StepTime, BucketsHoldAMillionParametersPerRankIfTheyGrow) {
  LiteralJob literal;
  literal.layout.dp = 4;
  literal.shard.layer.parameters = 1e6;
  literal.framework.overlap_gradients = false;
  const auto sums_us = [&](double bucket_bytes, bool grow) {
    literal.framework.bucket_bytes = bucket_bytes;
    literal.framework.buckets_grow = grow;
    return literal.term(literal.time(), LayoutTerm::kDataParallel);
  };
  EXPECT_EQ(sums_us(4e6, true), sums_us(16e6, false));
  EXPECT_LT(sums_us(4e6, true), sums_us(4e6, false));
  EXPECT_EQ(sums_us(32e6, true), sums_us(32e6, false));
}

// Per parameter 2 + 4 + 12 bytes; ZeRO-1 divides the last by the ranks, ZeRO-2 the gradients too,
// ZeRO-3 all, plus two gathered layers.
TEST(StepBytes, ShardingDividesWhatItSays) {
  LiteralJob literal;
  literal.layout.dp = 4;
  literal.shard.layer.parameters = 1e6;
  literal.shard.layer.kept_bytes = 5e5;
  literal.framework.reserved_share = 0;
  const auto bytes = [&](Sharding zero) {
    literal.layout.zero = zero;
    return step_bytes(literal.question(), spread_layers(literal.job.model, 1, false).value());
  };
  const double activations = 8 * 5e5;
  EXPECT_NEAR(bytes(Sharding::kNone).allocated(), 8e6 * 18 + activations, 1);
  EXPECT_NEAR(bytes(Sharding::kZero1).allocated(), 8e6 * (6 + 3) + activations, 1);
  EXPECT_NEAR(bytes(Sharding::kZero2).allocated(), 8e6 * (2 + 1 + 3) + activations, 1);
  EXPECT_NEAR(bytes(Sharding::kZero3).allocated(), 8e6 * 18 / 4 + activations + 2 * 2e6 + 4e6, 1);
}

TEST(Frameworks, EveryFileIsRead) {
  const auto names = framework_names(test_support::source_data());
  ASSERT_TRUE(names) << to_string(names.error());
  EXPECT_GE(names->size(), 5U);
  for (const std::string& name : *names) {
    const auto framework = find_framework(name, test_support::source_data());
    ASSERT_TRUE(framework) << to_string(framework.error());
    EXPECT_EQ(framework->name, name);
    EXPECT_FALSE(framework->sources.empty());
    EXPECT_LE(framework->low_share, 1);
    EXPECT_GE(framework->high_share, 1);
  }
  const auto unknown = find_framework("megatorn", test_support::source_data());
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("nanotron"), std::string::npos);
}

TEST(Frameworks, NumbersStayInTheirRange) {
  const auto file = test_support::scratch() / "framework_range.json";
  const auto message_with = [&](const char* key, const nlohmann::json& value) {
    std::ifstream known(test_support::source_data() / "frameworks/megatron.json");
    auto json = nlohmann::json::parse(known);
    json[key] = value;
    std::ofstream(file) << json;
    const auto read = read_framework(file);
    return read ? "none" : read.error().message;
  };
  EXPECT_EQ(message_with("network_share", 0.5), "none");
  EXPECT_EQ(message_with("network_share", 1.5), "expected a share above 0, at most 1, found 1.5");
  EXPECT_EQ(message_with("network_share", 0), "expected a number above 0, found 0");
  EXPECT_EQ(message_with("tensor_overlap", 1), "none");
  EXPECT_EQ(message_with("tensor_overlap", 1.01), "expected a share from 0 to 1, found 1.01");
  EXPECT_EQ(message_with("pipeline_exponent", 300), "expected an exponent from 0 to 10, found 300");
  EXPECT_EQ(message_with("high_share", 0.9), "expected a number of at least 1, found 0.9");
  EXPECT_NE(message_with("step_by_nodes_us", {{1e300, 1}}), "none");
  EXPECT_EQ(message_with("attention", "fa3"), "none");
  EXPECT_NE(message_with("attention", "fa9"), "none");
  EXPECT_EQ(message_with("loss", "chunked:4"), "none");
  EXPECT_NE(message_with("loss", "chunked:0"), "none");
}

TEST(Frameworks, TablesByNodesAreLinearOverTheLogarithm) {
  const std::vector<std::pair<double, double>> table = {{4, 100}, {16, 300}};
  EXPECT_EQ(at_nodes({}, 8), 0);
  EXPECT_EQ(at_nodes(table, 1), 100);
  EXPECT_NEAR(at_nodes(table, 8), 200, 1e-9);
  EXPECT_EQ(at_nodes(table, 64), 300);
}

}  // namespace layout_schedules_test
}  // namespace perfmodel
