// The step of a layout as Chakra files: what they hold, and that a replay of them takes as long as
// the layout is predicted to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "perfmodel/detail/layout_traces.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/replay.hpp"
#include "predictor_cases.hpp"
#include "random_layouts.hpp"

namespace perfmodel {
namespace layout_traces_test {

namespace fs = std::filesystem;

const LayoutPricer& traces_pricer() {
  static const Predictor predictor =
      Predictor::load({.data = test_support::source_data(), .gpus = {"h100-sxm-80gb"}}).value();
  static const LayoutPricer made = LayoutPricer::make(predictor, {.gpu = "h100-sxm-80gb"}).value();
  return made;
}

constexpr std::int64_t kLayers = 8, kHidden = 1024, kFeedForward = 4096, kVocabulary = 32768,
                       kSequence = 1024, kBatch = 32;
constexpr double kLayerParameters =
    4.0 * kHidden * kHidden + 3.0 * kHidden * kFeedForward + 2.0 * kHidden;

LayoutJob tiny_job(const std::string& software = "megatron") {
  LayoutJob job;
  job.model = {.name = "tiny",
               .layers = kLayers,
               .hidden = kHidden,
               .heads = 8,
               .feed_forward = kFeedForward,
               .vocabulary = kVocabulary};
  job.sequence = kSequence;
  job.global_batch = kBatch;
  job.software = software;
  return job;
}

ParallelLayout grid(std::int64_t tp, std::int64_t pp, std::int64_t dp,
                    Sharding zero = Sharding::kNone) {
  ParallelLayout layout;
  layout.tp = tp;
  layout.pp = pp;
  layout.dp = dp;
  layout.zero = zero;
  return layout;
}

LayoutTraces traces_of(const LayoutJob& job, const ParallelLayout& layout, bool every_rank) {
  auto made = traces_pricer().traces(job, layout, every_rank);
  EXPECT_TRUE(made) << to_string(made.error());
  return made ? std::move(*made) : LayoutTraces{};
}

// Through files, as a user replays them.
double replayed_ms(const LayoutTraces& traces) {
  std::string name = (fs::temp_directory_path() / "perfmodel_layout_XXXXXX").string();
  const fs::path folder = mkdtemp(name.data());
  const auto written = write_chakra(traces.ranks, folder / "job", traces.groups);
  EXPECT_TRUE(written) << to_string(written.error());
  std::vector<ChakraTrace> read;
  std::vector<std::string> sources;
  for (std::size_t rank = 0; rank < traces.ranks.size(); ++rank) {
    sources.push_back((folder / ("job." + std::to_string(rank) + ".et")).string());
    read.push_back(read_chakra(sources.back()).value());
  }
  const auto made = replay(read, sources);
  EXPECT_TRUE(made) << to_string(made.error());
  fs::remove_all(folder);
  double slowest = 0;
  for (const auto& rank : made->ranks) {
    slowest = std::max(slowest, rank.iterations[0].replayed_us * 1e-3);
  }
  return slowest;
}

void expect_replayed(const LayoutJob& job, const ParallelLayout& layout, bool every_rank,
                     const std::string& what) {
  const auto predicted = traces_pricer().predict(job, layout);
  ASSERT_TRUE(predicted) << to_string(predicted.error());
  const LayoutTraces traces = traces_of(job, layout, every_rank);
  EXPECT_NEAR(traces.step_us * 1e-3, predicted->step_ms, 0.005 * predicted->step_ms) << what;
  EXPECT_NEAR(replayed_ms(traces), predicted->step_ms, 0.01 * predicted->step_ms) << what;
}

TEST(LayoutTraces, ReplayedRanksTakeThePredictedStep) {
  expect_replayed(tiny_job(), grid(2, 2, 2), true, "tp 2 pp 2 dp 2");
}

TEST(LayoutTraces, SoDoAllStrategies) {
  ParallelLayout interleaved = grid(1, 4, 1);
  interleaved.vp = 2;
  ParallelLayout gpipe = grid(2, 4, 1);
  gpipe.order = PipelineOrder::kGpipe;
  ParallelLayout tokens = grid(4, 1, 2, Sharding::kZero1);
  tokens.sequence_parallel = true;
  ParallelLayout again = grid(2, 2, 2, Sharding::kZero2);
  again.recompute = LayoutRecompute::kFull;
  const std::pair<const char*, ParallelLayout> layouts[] = {
      {"one GPU", grid(1, 1, 1)},
      {"dp 8", grid(1, 1, 8)},
      {"sequence parallel, ZeRO-1", tokens},
      {"ZeRO-2, recomputed", again},
      {"ZeRO-3", grid(2, 1, 4, Sharding::kZero3)},
      {"HSDP over two nodes", grid(1, 1, 16, Sharding::kHsdp)},
      {"HSDP in a pipeline", grid(1, 2, 16, Sharding::kHsdp)},
      {"GPipe", gpipe},
      {"interleaved", interleaved},
      {"two nodes", grid(2, 2, 4, Sharding::kZero1)}};
  for (const auto& [name, layout] : layouts) expect_replayed(tiny_job(), layout, false, name);
}

// The closed form of a step against the schedule of its tasks, on fast hosts and slow ones.
TEST(LayoutTraces, TasksOfRandomLayoutsTakeThePredictedStep) {
  const auto predictor =
      Predictor::load({.data = test_support::source_data(), .gpus = {"h100-sxm-80gb"}}).value();
  for (const double host_scale : {0.01, 1.0, 5.0}) {
    const auto pricer =
        LayoutPricer::make(predictor, {.gpu = "h100-sxm-80gb", .host_scale = host_scale}).value();
    test_support::LayoutQuestions questions;
    int compared = 0;
    for (int i = 0; i < 30; ++i) {
      auto [job, layout] = questions.next();
      // The host of plain PyTorch runs ahead over whole steps.
      const bool may_be_plain = job.software == "nemo" && layout.zero != Sharding::kZero3;
      if (may_be_plain && i % 2 == 1) job.software = "pytorch";
      const auto predicted = pricer.predict(job, layout);
      const auto traces = pricer.traces(job, layout, false);
      if (!predicted || !traces) continue;
      ++compared;
      EXPECT_NEAR(traces->step_us * 1e-3, predicted->step_ms, 0.005 * predicted->step_ms)
          << "layout " << i << ", " << job.software << ", tp " << layout.tp << ", pp " << layout.pp
          << ", vp " << layout.vp << ", dp " << layout.dp << ", host " << host_scale;
    }
    EXPECT_GT(compared, 10);
  }
}

TEST(LayoutTraces, SoDoAllPrograms) {
  for (const char* software : {"nanotron", "megatron-deepspeed", "nemo"}) {
    expect_replayed(tiny_job(software), grid(2, 2, 2, Sharding::kZero1), false, software);
  }
  for (const char* software : {"fsdp", "deepspeed", "nemo"}) {
    expect_replayed(tiny_job(software), grid(1, 1, 8, Sharding::kZero3), false, software);
  }
  LayoutJob tied = tiny_job();
  tied.model.tied = true;
  expect_replayed(tied, grid(2, 4, 1), true, "tied embeddings");
}

/// Bytes of the collectives and messages of a rank in one step, by node name; as Chakra counts
/// them.
std::map<std::string, double> traffic_of(const ChakraTrace& trace) {
  std::map<std::string, double> bytes;
  for (const ChakraNode& node : trace.nodes) {
    if (node.comm_size) bytes[node.name] += static_cast<double>(*node.comm_size);
  }
  return bytes;
}

constexpr double kMicrobatchOf = 1;
constexpr double kActivation = 2.0 * kMicrobatchOf * kSequence * kHidden;  // bf16

// Two all-reduces of [b, s, h] per layer and pass.
TEST(LayoutTraffic, TensorParallelIsTheTextbooks) {
  auto traffic = traffic_of(traces_of(tiny_job(), grid(4, 1, 1), false).ranks[0]);
  const double all = 2.0 * kBatch * kLayers * kActivation;
  EXPECT_NEAR(traffic.at("all_reduce of layer forward"), all, 1);
  EXPECT_NEAR(traffic.at("all_reduce of layer backward"), all, 1);
}

// With sequence parallelism an all-gather and a reduce-scatter instead, and in the backward pass
// the inputs of the products once more. Chakra counts the part of a rank of a gather.
TEST(LayoutTraffic, SequenceParallelIsTheTextbooks) {
  ParallelLayout layout = grid(4, 1, 1);
  layout.sequence_parallel = true;
  auto traffic = traffic_of(traces_of(tiny_job(), layout, false).ranks[0]);
  const double pair = 2.0 * kBatch * kLayers * kActivation;
  EXPECT_NEAR(traffic.at("reduce_scatter of layer forward"), pair, 1);
  EXPECT_NEAR(traffic.at("reduce_scatter of layer backward"), pair, 1);
  EXPECT_NEAR(traffic.at("all_gather of layer forward"), pair / 4, 1);
  EXPECT_NEAR(traffic.at("all_gather of layer backward"), 2 * pair / 4, 1);
  EXPECT_EQ(traffic.count("all_reduce of layer forward"), 0u);
}

// Each microbatch crosses each border once in each direction.
TEST(LayoutTraffic, PipelineIsTheTextbooks) {
  for (const std::int64_t chunks : {1, 2}) {
    ParallelLayout layout = grid(1, 4, 1);
    layout.vp = chunks;
    const LayoutTraces traces = traces_of(tiny_job(), layout, false);
    double forward = 0, backward = 0;
    for (const ChakraTrace& trace : traces.ranks) {
      auto traffic = traffic_of(trace);
      forward += traffic["send activations"];
      backward += traffic["send gradients"];
    }
    const double borders = 4.0 * static_cast<double>(chunks) - 1;
    EXPECT_NEAR(forward, borders * kBatch * kActivation, 1);
    EXPECT_NEAR(backward, borders * kBatch * kActivation, 1);
  }
}

// Sequence parallelism sends the tokens of a rank alone.
TEST(LayoutTraffic, SequenceParallelStagesSendTheirPart) {
  ParallelLayout layout = grid(4, 2, 1);
  layout.sequence_parallel = true;
  auto traffic = traffic_of(traces_of(tiny_job(), layout, false).ranks[0]);
  EXPECT_NEAR(traffic.at("send activations"), kBatch * kActivation / 4, 1);
}

constexpr double kParameters = kLayers * kLayerParameters + 2.0 * kVocabulary * kHidden +
                               kHidden;  // norm in front of the head

// 4 bytes of gradients per parameter, once per step; ZeRO-1 and -2 get 2 bytes of weights back.
TEST(LayoutTraffic, DataParallelIsTheTextbooks) {
  auto plain = traffic_of(traces_of(tiny_job(), grid(1, 1, 8), false).ranks[0]);
  EXPECT_NEAR(plain.at("gradients"), 4 * kParameters, 64);
  EXPECT_EQ(plain.count("gather updated weights"), 0u);
  for (const Sharding zero : {Sharding::kZero1, Sharding::kZero2}) {
    auto traffic = traffic_of(traces_of(tiny_job(), grid(1, 1, 8, zero), false).ranks[0]);
    EXPECT_NEAR(traffic.at("gradients"), 4 * kParameters, 64);
    EXPECT_NEAR(traffic.at("gather updated weights"), 2 * kParameters / 8, 64);
  }
  LayoutJob half = tiny_job();
  half.fp32_gradients = false;
  auto traffic = traffic_of(traces_of(half, grid(1, 1, 8), false).ranks[0]);
  EXPECT_NEAR(traffic.at("gradients"), 2 * kParameters, 64);
}

// Per microbatch 2 bytes per parameter forward, again backward except for the first and the last
// unit, which stay, and 4 bytes of gradients.
TEST(LayoutTraffic, ShardedParametersAreTheTextbooks) {
  for (const Sharding zero : {Sharding::kZero3, Sharding::kFsdp}) {
    auto traffic = traffic_of(traces_of(tiny_job(), grid(1, 1, 8, zero), false).ranks[0]);
    const double microbatches = kBatch / 8.0, again = kLayers * kLayerParameters;
    EXPECT_NEAR(traffic.at("gather parameters"), microbatches * 2 * (kParameters + again) / 8,
                1e-6 * kParameters);
    EXPECT_NEAR(traffic.at("scatter gradients"), microbatches * 4 * kParameters,
                1e-6 * kParameters);
    EXPECT_EQ(traffic.count("gradients"), 0u);
  }
}

// A copy per node of 8, whose gradients are summed over the nodes: an eighth of them each.
TEST(LayoutTraffic, HybridShardingSumsOverTheCopies) {
  auto traffic = traffic_of(traces_of(tiny_job(), grid(1, 1, 16, Sharding::kHsdp), false).ranks[0]);
  EXPECT_NEAR(traffic.at("scatter gradients"), kBatch / 16.0 * 4 * kParameters, 1e-6 * kParameters);
  EXPECT_NEAR(traffic.at("gradients of the copies"), 4 * kParameters / 8, 64);
  const LayoutTraces staged = traces_of(tiny_job(), grid(1, 2, 16, Sharding::kHsdp), false);
  double scattered = 0, summed = 0, gathered = 0;
  for (const ChakraTrace& trace : staged.ranks) {
    auto stage = traffic_of(trace);
    scattered += stage.at("gradients");
    summed += stage.at("gradients of the copies");
    gathered += stage.at("gather updated weights");
  }
  EXPECT_NEAR(scattered, 4 * kParameters, 64);
  EXPECT_NEAR(summed, 4 * kParameters / 8, 64);
  EXPECT_NEAR(gathered, 2 * kParameters / 8, 64);
}

// Everything that the ranks of a job do together is split, not repeated.
TEST(LayoutTraces, GroupsAreThoseOfTheGrid) {
  const LayoutTraces traces = traces_of(tiny_job(), grid(2, 2, 2, Sharding::kZero1), true);
  ASSERT_EQ(traces.ranks.size(), 8u);
  std::vector<std::vector<std::int64_t>> groups;
  for (const auto& [name, ranks] : traces.groups.groups) groups.push_back(ranks);
  EXPECT_THAT(groups, ::testing::UnorderedElementsAre(
                          std::vector<std::int64_t>{0, 1}, std::vector<std::int64_t>{2, 3},
                          std::vector<std::int64_t>{4, 5}, std::vector<std::int64_t>{6, 7},
                          std::vector<std::int64_t>{0, 2}, std::vector<std::int64_t>{1, 3},
                          std::vector<std::int64_t>{4, 6}, std::vector<std::int64_t>{5, 7}));
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    for (const ChakraNode& node : traces.ranks[static_cast<std::size_t>(rank)].nodes) {
      if (node.type != ChakraNodeType::kSend) continue;
      EXPECT_EQ(node.comm_src, rank);
      EXPECT_EQ(node.comm_dst, rank + 4);
    }
  }
}

TEST(LayoutTraces, TimelinesShowEveryStage) {
  const LayoutTraces traces = traces_of(tiny_job(), grid(1, 4, 2), false);
  ASSERT_EQ(traces.timeline.ranks.size(), 4u);
  EXPECT_EQ(traces.timeline.ranks[1], "stage 1 (ranks 2 to 3)");
  std::map<std::string, int> passes;
  double end = 0;
  for (const auto& slice : traces.timeline.slices) {
    end = std::max(end, slice.start_us + slice.duration_us);
    if (slice.category == "user_annotation") ++passes[traces.timeline.names[slice.name]];
  }
  EXPECT_NEAR(end, traces.step_us, 1e-6);
  EXPECT_EQ(passes.size(), 2u * kBatch / 2);
  for (const auto& [name, count] : passes) EXPECT_EQ(count, 4) << name;
}

TEST(LayoutTraces, RefuseFilesThatNobodyCanHold) {
  LayoutJob job = tiny_job();
  job.global_batch = 1 << 20;
  const auto made = traces_pricer().traces(job, grid(1, 2, 1), false);
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, ::testing::HasSubstr("expected at most 4 million nodes"));
}

}  // namespace layout_traces_test
}  // namespace perfmodel
