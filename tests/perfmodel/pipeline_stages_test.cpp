// One recorded rank of a job: its collectives without communication, and the stages of a pipeline.
#include "predict/pipeline_stages.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"
#include "perfmodel/predictor.hpp"
#include "perfmodel/predictors/detail/collectives.hpp"
#include "perfmodel/predictors/topology.hpp"
#include "program/silent_collectives.hpp"
#include "scratch.hpp"

namespace perfmodel {
namespace pipeline_stages_test {

using testing::ElementsAre;
using testing::HasSubstr;

const std::filesystem::path kData = std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data";

/// The graph of one rank, recorded with a fake process group: ops of c10d without records.
class MadeRank {
 public:
  MadeRank() {
    graph_.source = "rank0.json";
    add("[pytorch|profiler|execution_trace|process]", 1);
    thread_ = add("[pytorch|profiler|execution_trace|thread]", 1);
  }

  Argument tensor(std::int64_t floats) {
    const auto shape = static_cast<std::uint32_t>(graph_.shape_pool.size());
    graph_.shape_pool.push_back(floats);
    graph_.tensors.push_back({.id = ++ids_,
                              .storage_id = ++ids_,
                              .numel = floats,
                              .item_size = 4,
                              .dtype = DType::kFloat32,
                              .device = {Device::Kind::kGpu, 0},
                              .shape_begin = shape,
                              .rank = 1});
    return {.kind = Argument::Kind::kTensor,
            .index = static_cast<std::uint32_t>(graph_.tensors.size()) - 1};
  }

  /// A kernel of so many microseconds, in the backward pass or not.
  Argument work(double us, bool backward, const Argument& input) {
    const Argument made = tensor(1024);
    const std::int64_t outer =
        backward ? add("autograd::engine::evaluate_function: AddBackward0", thread_) : thread_;
    add("aten::add", outer, {input, input}, {made});
    graph_.nodes.back().kernel_time_us = us;
    return made;
  }

  void call(const std::string& name, std::vector<Argument> inputs,
            std::vector<Argument> outputs = {}) {
    add(name, thread_, std::move(inputs), std::move(outputs));
  }
  void send(const Argument& sent, std::int64_t peer) { message("c10d::send", sent, peer); }
  Argument receive(std::int64_t peer) {
    const Argument made = tensor(1024);
    message("c10d::recv_", made, peer);
    return made;
  }
  void describe(ProcessGroup group) { graph_.process_groups.push_back(std::move(group)); }

  ExecutionGraph finish() {
    index_graph(graph_);
    return graph_;
  }

 private:
  void message(const std::string& name, const Argument& data, std::int64_t peer) {
    const Argument opaque{.kind = Argument::Kind::kOpaque};
    const auto number = [](std::int64_t value) {
      return Argument{.kind = Argument::Kind::kInt, .integer = value};
    };
    add(name, thread_, {data, opaque, number(peer), number(0)});
  }

  std::int64_t add(const std::string& name, std::int64_t parent, std::vector<Argument> inputs = {},
                   std::vector<Argument> outputs = {}) {
    Node node{.id = ++ids_, .parent_id = parent, .name = graph_.names.intern(name), .thread = 1};
    node.inputs_begin = static_cast<std::uint32_t>(graph_.arguments.size());
    node.inputs_count = static_cast<std::uint32_t>(inputs.size());
    graph_.arguments.insert(graph_.arguments.end(), inputs.begin(), inputs.end());
    node.outputs_begin = static_cast<std::uint32_t>(graph_.arguments.size());
    node.outputs_count = static_cast<std::uint32_t>(outputs.size());
    graph_.arguments.insert(graph_.arguments.end(), outputs.begin(), outputs.end());
    graph_.nodes.push_back(node);
    return node.id;
  }

  ExecutionGraph graph_;
  std::int64_t ids_ = 0, thread_ = 0;
};

constexpr double kForwardUs = 20e3, kBackwardUs = 40e3, kUpdateUs = 5e3;
constexpr std::int64_t kStages = 4, kPerStage = 64;

/// A pass of a stage. Messages come from the stage before and go to the one after, round and round.
/// `first`: the rank of the first stage.
void add_pass(MadeRank& rank, std::int64_t number, bool backward, bool receives, bool sends,
              std::int64_t first = 0) {
  const std::int64_t before = (number + kStages - 1) % kStages, after = (number + 1) % kStages;
  const Argument input =
      receives ? rank.receive(first + (backward ? after : before) * kPerStage) : rank.tensor(1024);
  const Argument made = rank.work(backward ? kBackwardUs : kForwardUs, backward, input);
  if (sends) rank.send(made, first + (backward ? before : after) * kPerStage);
}

/// One stage's step in an order: 'F' and 'B', then an update.
ExecutionGraph stage(std::int64_t number, std::string_view order, std::int64_t first = 0) {
  MadeRank rank;
  const bool has_previous = number > 0, has_next = number + 1 < kStages;
  for (const char pass : order) {
    if (pass == 'F') add_pass(rank, number, false, has_previous, has_next, first);
    if (pass == 'B') add_pass(rank, number, true, has_next, has_previous, first);
  }
  rank.work(kUpdateUs, false, rank.tensor(1024));
  return rank.finish();
}

constexpr std::int64_t kChunks = 2, kMicrobatches = 8;

/// The same of a stage with two chunks in Megatron-LM's order with `warm_up` forward passes before
/// the first backward pass: four microbatches through the first chunk, then through the second.
ExecutionGraph interleaved_stage(std::int64_t number, std::int64_t warm_up) {
  MadeRank rank;
  const auto is_first = [&](std::int64_t chunk) { return number == 0 && chunk == 0; };
  const auto is_last = [&](std::int64_t chunk) {
    return number + 1 == kStages && chunk + 1 == kChunks;
  };
  std::int64_t done = 0;
  for (std::int64_t k = 0; k < kChunks * kMicrobatches; ++k) {
    for (; done < std::min(k + warm_up, kChunks * kMicrobatches); ++done) {
      const std::int64_t chunk = done / kStages % kChunks;
      add_pass(rank, number, false, !is_first(chunk), !is_last(chunk));
    }
    const std::int64_t chunk = kChunks - 1 - k / kStages % kChunks;
    add_pass(rank, number, true, !is_last(chunk), !is_first(chunk));
  }
  rank.work(kUpdateUs, false, rank.tensor(1024));
  return rank.finish();
}

Result<JobPrediction> predicted(const ExecutionGraph& graph, std::int64_t world,
                                JobOptions job = {}) {
  static const OverheadTable table = read_overheads(kData / "overheads" / "reference.json").value();
  static const Gpu gpu = find_gpu("h100-sxm-80gb", kData / "gpus").value();
  RankInput rank{.graph = &graph, .table = &table};
  rank.options.world_size = world;
  return predict_job({&rank, 1}, gpu, job);
}

double step_us(const ExecutionGraph& graph, std::vector<double> layers = {}) {
  const auto made =
      predicted(graph, kPerStage, {.stages = kStages, .stage_layers = std::move(layers)});
  if (!made) return (ADD_FAILURE() << to_string(made.error()), 0);
  EXPECT_EQ(made->ranks.size(), kStages);
  EXPECT_EQ(made->ranks.front().ranks, kStages * kPerStage);
  double most = 0;
  for (const Prediction& one : made->ranks) most = std::max(most, one.e2e_us);
  return most;
}

std::string refusal(const ExecutionGraph& graph, std::int64_t world, std::int64_t stages,
                    std::vector<double> layers = {}) {
  const auto made = predicted(graph, world, {.stages = stages, .stage_layers = std::move(layers)});
  return made ? "" : made.error().message;
}

// By hand: 8 microbatches and 3 bubbles of F + B, then the update: 11 x 60 + 5 ms. Messages of
// 4 KiB take microseconds.
constexpr double kByHandUs = 11 * (kForwardUs + kBackwardUs) + kUpdateUs;

TEST(PipelineStages, FourStagesTakeTheClosedForm) {
  EXPECT_NEAR(step_us(stage(0, "FFFFBFBFBFBFBBBB")), kByHandUs, 0.005 * kByHandUs);  // 1F1B
  EXPECT_NEAR(step_us(stage(0, "FFFFFFFFBBBBBBBB")), kByHandUs, 0.005 * kByHandUs);  // GPipe
}

TEST(PipelineStages, AnyRecordedStageGivesTheSamePipeline) {
  const double first = step_us(stage(0, "FFFFBFBFBFBFBBBB"));
  EXPECT_NEAR(step_us(stage(1, "FFFBFBFBFBFBFBBB")), first, 0.002 * first);
  EXPECT_NEAR(step_us(stage(3, "FBFBFBFBFBFBFBFB")), first, 0.002 * first);
  // Stage 1 of a second pipeline, whose ranks come after all of the first.
  const ExecutionGraph second = stage(1, "FFFBFBFBFBFBFBBB", kStages * kPerStage);
  EXPECT_NEAR(step_us(second), first, 0.002 * first);
}

// 2 (4 - 1 - 1) + 4 + 1 of 8 passes run forward first on stage 1 with two chunks, which are all.
TEST(PipelineStages, SaysThatAMiddleStageDoesNotTellItsChunks) {
  const auto warns = [](const ExecutionGraph& graph) {
    const auto made = predicted(graph, kPerStage, {.stages = kStages}).value();
    return std::ranges::any_of(made.warnings, [](const std::string& warning) {
      return warning.find("the same under interleaved 1F1B in 2 chunks") != std::string::npos;
    });
  };
  EXPECT_TRUE(warns(stage(1, "FFFFFFFFBBBBBBBB")));
  EXPECT_FALSE(warns(stage(0, "FFFFFFFFBBBBBBBB")));
  EXPECT_FALSE(warns(stage(2, "FFFFFFFFBBBBBBBB")));
}

// By hand: each stage has 16 passes of a chunk in each direction, and the last one waits for three
// chunks of the others in each, a bubble of half of 1F1B's with the same work.
constexpr double kInterleavedUs = (16 + 3) * (kForwardUs + kBackwardUs) + kUpdateUs;

TEST(PipelineStages, ChunksInTurnTakeTheClosedForm) {
  EXPECT_NEAR(step_us(interleaved_stage(0, 11)), kInterleavedUs, 0.005 * kInterleavedUs);
  EXPECT_NEAR(step_us(interleaved_stage(1, 9)), kInterleavedUs, 0.005 * kInterleavedUs);
  EXPECT_NEAR(step_us(interleaved_stage(2, 7)), kInterleavedUs, 0.005 * kInterleavedUs);
  EXPECT_NEAR(step_us(interleaved_stage(3, 5)), kInterleavedUs, 0.005 * kInterleavedUs);
}

TEST(PipelineStages, SaysHowManyChunksItFound) {
  const auto made = predicted(interleaved_stage(1, 9), kPerStage, {.stages = kStages});
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_THAT(made->warnings,
              testing::Contains(HasSubstr("8 microbatches under interleaved 1F1B in 2 chunks")));
}

// By hand, with a last stage of twice the layers: it works for 8 x 2 x 60 ms without a break, after
// three forward passes and before three backward passes of the others.
TEST(PipelineStages, UnevenStagesTakeAsLongAsTheirLayers) {
  constexpr double kUs = (16 + 3) * (kForwardUs + kBackwardUs) + kUpdateUs;
  EXPECT_NEAR(step_us(stage(0, "FFFFBFBFBFBFBBBB"), {6, 6, 6, 12}), kUs, 0.005 * kUs);
  EXPECT_NEAR(step_us(stage(1, "FFFBFBFBFBFBFBBB"), {6, 6, 6, 12}), kUs, 0.005 * kUs);
  const double all_half = step_us(stage(3, "FBFBFBFBFBFBFBFB"), {6, 6, 6, 12});
  EXPECT_NEAR(all_half, kUs / 2, 0.005 * kUs);  // the recorded stage is the long one
}

TEST(PipelineStages, SaysWhatItMade) {
  const auto made = predicted(stage(0, "FFFFBFBFBFBFBBBB"), kPerStage, {.stages = kStages});
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_THAT(made->warnings, testing::Contains(HasSubstr("each with 8 microbatches under 1F1B")));
  EXPECT_THAT(made->warnings,
              testing::Contains(HasSubstr("16 collectives were recorded without communication")));
}

TEST(PipelineStages, RefusesStepsThatItCannotCut) {
  EXPECT_EQ(refusal(stage(0, "FFBB"), 1, 4),
            "stages: expected sends and receives between stages, found none");
  EXPECT_EQ(refusal(stage(0, "FFB"), kPerStage, 4),
            "stages: expected sends and receives around as many forward as backward passes, found "
            "2 and 1");
  const auto order = [](std::int64_t number, int forward, int warm_up) {
    return fmt::format(
        "stages: expected the order of GPipe, 1F1B or interleaved 1F1B, found {} forward passes on "
        "stage {}, {} of them before the first backward pass",
        forward, number, warm_up);
  };
  EXPECT_EQ(refusal(stage(0, "FFFFFBFBFBBBBB"), kPerStage, 4), order(0, 7, 5));
  EXPECT_EQ(refusal(stage(1, "FFFFFFBFBFBBBBBB"), kPerStage, 4), order(1, 8, 6));
  EXPECT_EQ(refusal(interleaved_stage(0, 8), kPerStage, 4), order(0, 16, 8));
  EXPECT_EQ(refusal(stage(1, "FFFBBB"), kPerStage, 8), "");
  EXPECT_EQ(refusal(stage(2, "FFBBFFBB"), kPerStage, 3),
            "stages: expected the neighbours of one of 3 stages, found ranks 64 and 192");
  MadeRank uneven;
  uneven.send(uneven.work(1, false, uneven.receive(0)), 129);
  uneven.send(uneven.work(1, true, uneven.receive(129)), 0);
  EXPECT_EQ(refusal(uneven.finish(), kPerStage, 4),
            "stages: expected the neighbours of one of 4 stages, found ranks 0 and 129");
  EXPECT_EQ(refusal(stage(0, "FFBB"), kPerStage, 4, {2, 2, 2}),
            "stage_layers: expected 4 counts of layers of 1 or more, found 2,2,2");
}

TEST(PipelineStages, WritesTheTracesOfAllRanks) {
  const auto made =
      predicted(stage(0, "FFFFBFBFBFBFBBBB"), 2, {.keep_chakra = true, .stages = kStages});
  ASSERT_TRUE(made) << to_string(made.error());
  ChakraJobOptions job;
  const auto traces = traces_of_all_ranks(made->chakra, 2, job).value();
  ASSERT_EQ(traces.size(), 8U);
  std::vector<std::int32_t> peers;  // rank 3 is stage 1, position 1
  for (const ChakraNode& node : traces[3].nodes) {
    if (node.type == ChakraNodeType::kSend) peers.push_back(node.comm_dst.value());
  }
  EXPECT_EQ(std::ranges::count(peers, 5), 8);
  EXPECT_EQ(std::ranges::count(peers, 1), 8);
  // Unmatched sends would be refused.
  const auto written = write_chakra(traces, test_support::scratch_file("job"), job);
  EXPECT_TRUE(written) << to_string(written.error());
}

TEST(PipelineStages, WritesTheTracesOfChunksInTurn) {
  const auto made = predicted(interleaved_stage(2, 7), 2, {.keep_chakra = true, .stages = kStages});
  ASSERT_TRUE(made) << to_string(made.error());
  ChakraJobOptions job;
  const auto traces = traces_of_all_ranks(made->chakra, 2, job).value();
  // The last stage hands on the first chunk forwards and both backwards.
  const auto sends = [&](const ChakraNode& node) { return node.type == ChakraNodeType::kSend; };
  EXPECT_EQ(std::ranges::count_if(traces[7].nodes, sends), 3 * kMicrobatches);
  const auto written = write_chakra(traces, test_support::scratch_file("interleaved"), job);
  EXPECT_TRUE(written) << to_string(written.error());
}

Predictor h100_predictor() {
  return Predictor::load({.data = kData, .gpus = {"h100-sxm-80gb"}}).value();
}

TEST(PipelineStages, APredictorAnswersWithTheSlowestStage) {
  const ExecutionGraph graph = stage(0, "FFFFBFBFBFBFBBBB");
  const Predictor predictor = h100_predictor();
  const PreparedGraph prepared = predictor.prepare(graph).value();
  const AskOptions asked{.world = kStages * kPerStage, .stages = kStages};
  const auto made = predictor.predict(prepared, "h100-sxm-80gb", asked);
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_EQ(made->e2e_us, step_us(graph));
  EXPECT_EQ(made->ranks, kStages * kPerStage);
  EXPECT_FALSE(made->samples_per_s());  // stages share their samples
  EXPECT_THAT(made->warnings, testing::Contains(HasSubstr("each with 8 microbatches under 1F1B")));
  EXPECT_EQ(predictor.predict(graph, "h100-sxm-80gb", asked)->e2e_us, made->e2e_us);
}

TEST(PipelineStages, APredictorRefusesWhatThePipelineIsNot) {
  const ExecutionGraph graph = stage(0, "FFFFBFBFBFBFBBBB");
  const Predictor predictor = h100_predictor();
  const auto refusal = [&](const AskOptions& asked) {
    const auto made = predictor.predict(graph, "h100-sxm-80gb", asked);
    return made ? "" : made.error().message;
  };
  EXPECT_EQ(refusal({.stages = 4}), "stages: expected a divisor of 0 ranks, found 4");
  EXPECT_EQ(refusal({.world = 6, .stages = 4}), "stages: expected a divisor of 6 ranks, found 4");
  EXPECT_EQ(refusal({.world = 8, .strategy = ParallelStrategy::kDdp, .stages = 4}),
            "stages: expected no strategy, found one");
}

// ---- one rank of 256 ----------------------------------------------------------------------------

ExecutionGraph rank_of_256() {
  MadeRank rank;
  const Argument gradients = rank.tensor(1 << 28), shard = rank.tensor(1 << 20);
  rank.work(1e3, true, gradients);
  rank.call("c10d::allreduce_", {gradients});
  rank.call("c10d::_allgather_base_", {gradients, shard});
  rank.work(1e3, false, gradients);
  return rank.finish();
}

double collective_us(CollectiveKind kind, double bytes) {
  static const Gpu gpu = find_gpu("h100-sxm-80gb", kData / "gpus").value();
  return collective_time(topology_for(gpu),
                         {.kind = kind, .bytes = {bytes}, .ranks = 256, .nodes = 32})
      ->time.count();
}

// 1 GiB on 32 nodes of 8 NICs of 50 GB/s in one direction: a ring sends 2 x 255/256 of it through
// the NICs of each node, 2.139e9 B / 400 GB/s = 5.35 ms at their full rate.
TEST(SilentCollectives, TakeTheTimeOfTheirSizeAndGroup) {
  const auto made = predicted(rank_of_256(), 256);
  ASSERT_TRUE(made) << to_string(made.error());
  const Prediction& step = made->ranks[0];
  const double reduce = collective_us(CollectiveKind::kAllReduce, 1 << 30);
  const double gather = collective_us(CollectiveKind::kAllGather, 1 << 30);
  EXPECT_NEAR(step.comm_kernel_us, reduce + gather, 1e-3);
  EXPECT_GT(reduce, 5350);
  EXPECT_LT(reduce, 5350 / 0.8);
  EXPECT_NEAR(step.e2e_us, 2e3 + reduce + gather, 100);  // each waits for the one before
  EXPECT_EQ(step.ranks, 256);
}

TEST(SilentCollectives, HaveTheGroupThatTheyName) {
  MadeRank rank;
  rank.describe({.name = "0", .size = 256});
  rank.describe({.name = "tp", .ranks = {0, 1, 2, 3, 4, 5, 6, 7}, .size = 8});
  rank.call("c10d::allreduce_", {rank.tensor(1 << 20)});
  const ExecutionGraph graph = rank.finish();
  const auto refused = record_silent_collectives(graph, 256);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("found c10d::allreduce_ (node "));
}

TEST(SilentCollectives, MessagesAreBetweenNeighbours) {
  const auto made = record_silent_collectives(stage(1, "FB"), 64).value();
  ASSERT_EQ(made.process_groups.size(), 2U);
  EXPECT_THAT(made.process_groups[0].ranks, ElementsAre(0, 64));
  EXPECT_THAT(made.process_groups[1].ranks, ElementsAre(64, 128));
}

// A kernel without length is no measurement.
TEST(SilentCollectives, TracedKernelsOfNoLengthArePriced) {
  const ExecutionGraph graph = rank_of_256();
  const auto recorded = record_silent_collectives(graph, 256).value();
  KernelTimes times;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (recorded.nodes[i].comm >= 0) times.add(static_cast<std::int32_t>(i), 0, 0, true);
  }
  static const OverheadTable table = read_overheads(kData / "overheads" / "reference.json").value();
  const Gpu gpu = find_gpu("h100-sxm-80gb", kData / "gpus").value();
  RankInput rank{.graph = &graph, .table = &table};
  rank.options.world_size = 256;
  rank.options.kernel_times = &times;
  const auto made = predict_job({&rank, 1}, gpu);
  ASSERT_TRUE(made) << to_string(made.error());
  EXPECT_GT(made->ranks[0].comm_kernel_us, 5350);
}

// ---- kernels during a collective ----------------------------------------------------------------

ExecutionGraph kernel_during(bool collective) {
  MadeRank rank;
  const Argument gradients = rank.tensor(1 << 28);
  if (collective) rank.call("c10d::allreduce_", {gradients});
  rank.call("aten::relu", {rank.tensor(1 << 26)}, {rank.tensor(1 << 26)});
  rank.work(1, false, gradients);  // waits, so that steps do not overlap
  return rank.finish();
}

// By hand: NCCL's 16 NVLS channels on H100 take 16 x 640 / 2048 of 132 SMs, 3.8 %, and an
// all-reduce of 1 GiB reads and writes 2 GiB in its time t: 2.147e9 B / (t x 3.35e12 B/s) of DRAM.
TEST(DuringCollectives, KernelsLoseSmsAndBandwidth) {
  const auto alone = predicted(kernel_during(false), 0), made = predicted(kernel_during(true), 8);
  ASSERT_TRUE(alone && made);
  const Prediction& step = made->ranks[0];
  const double share = 16 * 640.0 / 2048 / 132 + 2147.483648e6 / (step.comm_kernel_us * 3.35e6);
  const double expected = (alone->ranks[0].compute_kernel_us - 1) * share;
  EXPECT_GT(share, 0.1);
  EXPECT_NEAR(step.parallel.beside_us, expected, 0.01 * expected);
  EXPECT_NEAR(step.compute_kernel_us, alone->ranks[0].compute_kernel_us + step.parallel.beside_us,
              1e-6);
  EXPECT_EQ(alone->ranks[0].parallel.beside_us, 0);
}

}  // namespace pipeline_stages_test
}  // namespace perfmodel
