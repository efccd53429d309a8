// Several ranks predicted together, one rank scaled out, and what is written of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "../scratch.hpp"
#include "literal_case.hpp"
#include "perfmodel/detail/timeline.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/chakra.hpp"
#include "perfmodel/replay.hpp"

namespace perfmodel {
namespace job_test {

namespace fs = std::filesystem;
using test_support::Case;

constexpr double kNear = 1e-6;

class Scratch {
 public:
  Scratch() {
    folder_ = test_support::scratch() / "job";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~Scratch() { fs::remove_all(folder_); }
  fs::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  fs::path folder_;
};

RankInput input(const Case& rank) {
  RankInput made{.graph = &rank.graph, .table = &rank.table};
  made.options.kernel_times = &rank.times;
  return made;
}

JobPrediction predict_ranks(const std::vector<const Case*>& ranks, const JobOptions& options = {}) {
  std::vector<RankInput> inputs;
  for (const Case* rank : ranks) inputs.push_back(input(*rank));
  auto job = predict_job(inputs, test_support::round_gpu(), options);
  if (!job) {
    ADD_FAILURE() << to_string(job.error());
    return {};
  }
  return std::move(*job);
}

std::string failure(const std::vector<const Case*>& ranks, const JobOptions& options) {
  std::vector<RankInput> inputs;
  for (const Case* rank : ranks) inputs.push_back(input(*rank));
  const auto job = predict_job(inputs, test_support::round_gpu(), options);
  return job ? "no error" : to_string(job.error());
}

// One rank by the table in literal_case.hpp: kernel a is launched at 9, the collective at 19; it is
// there at 20.5 and moves data for 5; the synchronise that began at 25 ends 2 us later, T3 1.
TEST(PredictJob, TheLastRankDecides) {
  const Case one({"a", "allreduce", "drain"}, 5), two({"a", "allreduce", "drain"}, 5);
  const JobPrediction job = predict_ranks({&one, &two}, {.rank_start_us = {1000, 1100}});
  ASSERT_EQ(job.ranks.size(), 2u);
  EXPECT_NEAR(job.ranks[0].e2e_us, 100 + 20.5 + 5 + 2 + 1, kNear);
  EXPECT_NEAR(job.ranks[1].e2e_us, 20.5 + 5 + 2 + 1, kNear);
  EXPECT_NEAR(job.ranks[0].begin_us, 0, kNear);
  EXPECT_NEAR(job.ranks[1].begin_us, 100, kNear);
  EXPECT_NEAR(job.ranks[0].communication.waiting_us, 100, kNear);
  EXPECT_NEAR(job.ranks[1].communication.waiting_us, 0, kNear);
  for (const Prediction& rank : job.ranks) {
    EXPECT_NEAR(rank.communication.transfer_us, 5, kNear);
    EXPECT_EQ(rank.communication.collectives, 1u);
  }
  EXPECT_NEAR(job.ranks[0].comm_kernel_us, 105, kNear);  // the kernel waits on the device
  EXPECT_EQ(job.ranks[0].communication.last_arrivals, 0u);
  EXPECT_EQ(job.ranks[1].communication.last_arrivals, 1u);
  EXPECT_NEAR(job.ranks[1].communication.caused_us, 100, kNear);
  ASSERT_TRUE(job.job);
  EXPECT_NEAR(job.job->step_us, 128.5, kNear);
  EXPECT_EQ(job.job->straggler, 1);
  EXPECT_NEAR(job.job->straggler_saving_us, 50, kNear);  // 100 on one of two ranks
  EXPECT_NEAR(job.job->imbalance, 0, kNear);
}

TEST(PredictJob, EqualRanksInSteadyStateDoNotWait) {
  const Case one({"a", "allreduce", "drain"}, 5), two({"a", "allreduce", "drain"}, 5);
  const JobPrediction job = predict_ranks({&one, &two});
  const Prediction alone = one.predict();
  for (const Prediction& rank : job.ranks) {
    EXPECT_NEAR(rank.e2e_us, alone.e2e_us, kNear);
    EXPECT_NEAR(rank.communication.waiting_us, 0, kNear);
  }
  ASSERT_TRUE(job.job);
  EXPECT_EQ(job.job->straggler, -1);
}

TEST(PredictJob, TheSlowestRankSetsThePaceOfAll) {
  const Case fast({"a", "allreduce", "drain"}, 5), slow({"a", "a", "b", "allreduce", "drain"}, 5);
  const JobPrediction job = predict_ranks({&fast, &slow});
  EXPECT_NEAR(job.ranks[0].e2e_us, job.ranks[1].e2e_us, kNear);
  EXPECT_NEAR(job.ranks[1].e2e_us, slow.predict().e2e_us, kNear);
  EXPECT_NEAR(job.ranks[0].communication.waiting_us, 20, kNear);  // two ops of 10 us
  EXPECT_EQ(job.job->straggler, 1);
}

// Recorded durations hold waiting: the shortest is nearest to the transfer.
TEST(PredictJob, ARecordedCollectiveTakesItsShortestDuration) {
  const Case waited({"a", "allreduce", "drain"}, 80), last({"a", "allreduce", "drain"}, 5);
  const JobPrediction job = predict_ranks({&waited, &last});
  EXPECT_NEAR(job.ranks[0].communication.transfer_us, 5, kNear);
  EXPECT_NEAR(job.ranks[1].communication.transfer_us, 5, kNear);
}

TEST(PredictJob, BadInputIsToldWithTheRank) {
  const Case two({"allreduce", "a", "allreduce", "drain"}, 5), one({"allreduce", "drain"}, 5);
  const Case none({"a", "drain"}, 5);
  EXPECT_NE(failure({&two, &two}, {.rank_start_us = {1}}).find("one start per rank (2), found 1"),
            std::string::npos);
  EXPECT_NE(failure({&two, &two}, {.rank_start_us = {1, 0.0 / 0.0}}).find("finite"),
            std::string::npos);
  const std::string lacks = failure({&two, &one}, {});
  EXPECT_NE(lacks.find("rank 1 lacks"), std::string::npos) << lacks;
  EXPECT_NE(lacks.find("rank 0"), std::string::npos) << lacks;
  EXPECT_EQ(failure({&two, &one}, {.missing_collectives = true}), "no error");
  EXPECT_NE(failure({&two, &none}, {}).find("ranks of one job"), std::string::npos);
  const JobPrediction apart = predict_ranks({&none, &none});
  ASSERT_EQ(apart.warnings.size(), 1u);
  EXPECT_NE(apart.warnings[0].find("do not wait for each other"), std::string::npos);
}

// ---- files -------------------------------------------------------------------------------------

TEST(PredictJob, ChakraFilesHoldTheStep) {
  const Case one({"a", "allreduce", "drain"}, 5), two({"a", "allreduce", "drain"}, 5);
  const JobPrediction job =
      predict_ranks({&one, &two}, {.rank_start_us = {0, 100}, .keep_chakra = true});
  ASSERT_EQ(job.chakra.size(), 2u);
  const Scratch scratch;
  const auto written = write_chakra(job.chakra, scratch / "job");
  ASSERT_TRUE(written) << to_string(written.error());
  for (int rank : {0, 1}) {
    const auto back = read_chakra(scratch / ("job." + std::to_string(rank) + ".et"));
    ASSERT_TRUE(back) << to_string(back.error());
    double host = 0, late = 0;
    std::size_t collectives = 0;
    for (const ChakraNode& node : back->nodes) {
      if (node.is_cpu_op) (node.name == "start of the rank" ? late : host) += node.duration_us;
      collectives += node.type == ChakraNodeType::kCollective;
    }
    EXPECT_EQ(collectives, 1u);
    // T1 to T3 and calls of three ops: 3 (3 + 2 + 1) + 4 + 4 + 2.
    EXPECT_NEAR(host, 28, 1);
    EXPECT_EQ(late, rank == 0 ? 0 : 100);
  }
}

// The written files replay as predicted, except for launch latencies and gaps.
TEST(PredictJob, ChakraFilesReplayAsPredicted) {
  const Case one({"a", "allreduce", "drain"}, 50), two({"a", "allreduce", "drain"}, 50);
  const JobPrediction job =
      predict_ranks({&one, &two}, {.rank_start_us = {0, 1000}, .keep_chakra = true});
  const std::string names[] = {"zero", "one"};
  const auto again = replay(job.chakra, names);
  ASSERT_TRUE(again) << to_string(again.error());
  ASSERT_EQ(again->ranks.size(), 2u);
  // Host 25, the last rank's kernel 50 after its call at 9; the collective after both; 2 + 1.
  EXPECT_NEAR(again->ranks[0].iterations[0].replayed_us, 1000 + 9 + 50 + 50 + 3, 1e-6);
  EXPECT_NEAR(again->ranks[0].communication.waiting_us, 1000, 1e-6);
  EXPECT_EQ(again->ranks[0].communication.last_arrivals, 0u);
  EXPECT_EQ(again->ranks[1].communication.last_arrivals, 1u);
  EXPECT_NEAR(again->ranks[1].communication.caused_us, 1000, 1e-6);
  // Kernels scale, collectives do not.
  ReplayOptions options;
  options.scale_kernels = 2;
  EXPECT_NEAR(replay(job.chakra, names, options)->ranks[1].iterations[0].replayed_us,
              1000 + 9 + 100 + 50 + 3, 1e-6);
  // The data dependencies contain the whole order.
  auto by_data = job.chakra;
  for (ChakraTrace& rank : by_data) {
    for (ChakraNode& node : rank.nodes) node.ctrl_deps.clear();
  }
  EXPECT_EQ(replay(by_data, names)->ranks[0].iterations[0].replayed_us,
            again->ranks[0].iterations[0].replayed_us);
}

// Chakra's converter writes callers as ctrl_deps, lets parents and children wait for each other,
// and knows no starts.
TEST(PredictJob, ChakraFilesOfOtherToolsReplay) {
  ChakraTrace trace;
  const auto add = [&](std::uint64_t id, double us, bool host, std::vector<std::uint64_t> ctrl,
                       std::vector<std::uint64_t> data) {
    trace.nodes.push_back({.id = id,
                           .name = "n" + std::to_string(id),
                           .ctrl_deps = std::move(ctrl),
                           .data_deps = std::move(data),
                           .duration_us = us,
                           .is_cpu_op = host});
  };
  add(1, 10, true, {99}, {2});    // its caller is in no file; it waits for its callee
  add(2, 20, true, {1}, {1});     // which waits for it
  add(3, 100, false, {2}, {2});   // a kernel
  add(4, 5, true, {1}, {2});      // called by 1, after 2
  add(5, 7, false, {4}, {4, 3});  // after both
  add(6, 1, true, {}, {7});       // two that wait for each other, neither the other's caller
  add(7, 1, true, {}, {6});
  const std::string names[] = {"foreign.et"};
  const auto made = replay({&trace, 1}, names);
  ASSERT_TRUE(made) << to_string(made.error());
  const auto& iteration = made->ranks[0].iterations[0];
  EXPECT_EQ(iteration.measured_us, 0);
  EXPECT_NEAR(iteration.replayed_us, 10 + 20 + 100 + 7, 1e-9);
  EXPECT_THAT(made->warnings, ::testing::Contains(::testing::HasSubstr("closed a circle")));
  EXPECT_THAT(made->warnings, ::testing::Contains(::testing::HasSubstr("no starts in the files")));
  ReplayOptions slower;  // compared with the replay as it is, there being nothing else
  slower.scale_kernels = 2;
  const auto twice = replay({&trace, 1}, names, slower);
  ASSERT_TRUE(twice);
  EXPECT_NEAR(twice->ranks[0].iterations[0].change(), 244. / 137 - 1, 1e-9);
}

TEST(PredictJob, ChakraFilesThatDoNotFitTogetherAreTold) {
  const Case both({"a", "allreduce", "drain"}, 5), none({"a", "drain"}, 5);
  auto traces = predict_ranks({&both, &both}, {.keep_chakra = true}).chakra;
  const std::string names[] = {"zero.et", "one.et"};
  auto lacking = traces;
  auto& nodes = lacking[1].nodes;
  auto extra = *std::find_if(nodes.begin(), nodes.end(), [](const ChakraNode& node) {
    return node.type == ChakraNodeType::kCollective;
  });
  extra.id = 1000;
  nodes.push_back(extra);
  const auto failed = replay(lacking, names);
  ASSERT_FALSE(failed);
  EXPECT_NE(to_string(failed.error()).find("zero.et lacks"), std::string::npos)
      << to_string(failed.error());
  ReplayOptions go_on;
  go_on.missing_ranks = true;
  EXPECT_TRUE(replay(lacking, names, go_on));
  auto other_kind = traces;
  for (ChakraNode& node : other_kind[1].nodes) {
    if (node.comm_type) node.comm_type = ChakraCollective::kAllToAll;
  }
  EXPECT_FALSE(replay(other_kind, names));
  traces[0].nodes.clear();
  EXPECT_NE(to_string(replay(traces, names).error()).find("found none"), std::string::npos);
}

TEST(PredictJob, TheTimelineShowsRanksOnOneClock) {
  const Case one({"a", "allreduce", "drain"}, 5), two({"a", "allreduce", "drain"}, 5);
  std::vector<RankInput> inputs = {input(one), input(two)};
  for (RankInput& rank : inputs) rank.options.keep_calls = true;
  const JobPrediction job =
      predict_job(inputs, test_support::round_gpu(), {.rank_start_us = {0, 100}}).value();
  const Scratch scratch;
  const Prediction* const ranks[] = {&job.ranks[0], &job.ranks[1]};
  const TimelineTitle titles[] = {{.graph = "zero", .gpu = "G"}, {.graph = "one", .gpu = "G"}};
  const auto without_calls =
      write_timeline(predict_ranks({&one}).ranks[0], titles[0], scratch / "none.json");
  ASSERT_FALSE(without_calls);
  EXPECT_NE(to_string(without_calls.error()).find("keep_calls"), std::string::npos);
  ASSERT_TRUE(write_timeline(ranks, titles, 0, scratch / "t.json"));
  const auto json = nlohmann::json::parse(std::ifstream(scratch / "t.json"));
  std::set<int> processes;
  std::map<int, double> collective_end;  // by process
  std::size_t path_arrows = 0;
  for (const auto& event : json["traceEvents"]) {
    processes.insert(event["pid"].get<int>());
    path_arrows += event.value("cat", "") == "critical_path";
    if (event.value("cat", "") != "kernel" || event["args"]["family"] != "collective") continue;
    const int process = event["pid"];
    collective_end[process] = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_EQ(processes.size(), 4u);
  EXPECT_GE(path_arrows, 2u);
  ASSERT_EQ(collective_end.size(), 2u);
  EXPECT_NEAR(collective_end.begin()->second, 125.5, 2e-3);
  EXPECT_NEAR(collective_end.rbegin()->second, 125.5, 2e-3);
}

// ---- one rank scaled out -----------------------------------------------------------------------

class ScaleOutTest : public ::testing::Test {
 protected:
  ScaleOutTest() {
    DlrmConfig config = dlrm_preset("default").value();
    graph_ = build_dlrm(config).value();
    std::vector<std::int64_t> top = config.top_mlp;
    top.insert(top.begin(), interaction_width(config));
    for (const auto& widths : {config.bottom_mlp, top}) {
      for (std::size_t i = 1; i < widths.size(); ++i) {  // weights and biases
        dense_bytes_ += 4.0 * static_cast<double>(widths[i] * (widths[i - 1] + 1));
      }
    }
  }

  Prediction predict(const std::optional<ScaleOut>& scale_out) const {
    PredictOptions options;
    options.scale_out = scale_out;
    auto made = perfmodel::predict(graph_, test_support::round_gpu(), test_support::literal_table(),
                                   options);
    if (!made) {
      ADD_FAILURE() << to_string(made.error());
      return {};
    }
    return std::move(*made);
  }

  ExecutionGraph graph_;
  double dense_bytes_ = 0;
};

TEST_F(ScaleOutTest, OneRankNeedsNoCollectives) {
  const Prediction alone = predict({}), one = predict(ScaleOut{.world = 1});
  EXPECT_EQ(one.e2e_us, alone.e2e_us);
  ASSERT_TRUE(one.scaled_out);
  EXPECT_EQ(one.scaled_out->collectives, 0u);
  EXPECT_FALSE(alone.scaled_out);
}

TEST_F(ScaleOutTest, DdpReducesEveryGradientInBuckets) {
  const Prediction alone = predict({}), eight = predict(ScaleOut{.world = 8});
  ASSERT_TRUE(eight.scaled_out);
  EXPECT_GT(eight.e2e_us, alone.e2e_us);
  EXPECT_EQ(eight.scaled_out->strategy, ParallelStrategy::kDdp);
  EXPECT_EQ(eight.scaled_out->parameter_bytes, dense_bytes_);  // tables are no replicas
  ScaleOut small{.world = 8};
  small.ddp.bucket_cap_bytes = 1;
  small.ddp.first_bucket_bytes = 1;
  const Prediction many = predict(small);
  std::size_t gradients = 0;
  for (const PredictedOp& op : alone.ops) gradients += op.name.ends_with("AccumulateGrad");
  EXPECT_EQ(many.scaled_out->collectives, gradients);
  EXPECT_LT(eight.scaled_out->collectives, gradients);
  std::size_t reduced = 0;
  for (const PredictedOp& op : eight.ops) {
    reduced += static_cast<std::size_t>(
        std::ranges::count(op.kernels, KernelFamily::kCollective, &PredictedKernel::family));
  }
  EXPECT_EQ(reduced, eight.scaled_out->collectives);
  EXPECT_EQ(eight.communication.collectives, reduced);
}

TEST_F(ScaleOutTest, ViewsSpareTheCopies) {
  ScaleOut views{.world = 8};
  views.ddp_copies_gradients = false;
  EXPECT_LT(predict(views).e2e_us, predict(ScaleOut{.world = 8}).e2e_us);
}

TEST_F(ScaleOutTest, FsdpGathersAndReducesEveryUnit) {
  ScaleOut fsdp{.world = 8, .strategy = ParallelStrategy::kFsdp};
  fsdp.fsdp_unit_bytes = 1;  // every parameter a unit
  const Prediction p = predict(fsdp);
  std::map<std::string_view, std::size_t> ops;
  for (const PredictedOp& op : p.ops) ++ops[op.name];
  const std::size_t units = ops["fsdp: reduce_scatter"];
  EXPECT_GT(units, 2u);
  EXPECT_EQ(ops["fsdp: all_gather"], 2 * units - 1);  // the last one is still there in backward
  EXPECT_EQ(p.scaled_out->collectives, 3 * units - 1);
  fsdp.fsdp_unit_bytes = 1e12;
  EXPECT_EQ(predict(fsdp).scaled_out->collectives, 2u);
}

// Literal figures: an op without calls 3 + 7 us, with a launch 3 + 2 + 4 + 1.
TEST_F(ScaleOutTest, FsdpCostsTheHostItsUnits) {
  const Prediction alone = predict({});
  ScaleOut fsdp{.world = 8, .strategy = ParallelStrategy::kFsdp};
  fsdp.fsdp_unit_bytes = 1e12;  // one unit
  const Prediction one = predict(fsdp);
  std::map<std::string_view, double> host_us;
  std::size_t gradients = 0;
  for (const PredictedOp& op : one.ops) {
    if (op.name.starts_with("fsdp: ")) host_us[op.name] += op.host_us;
    gradients += op.name.ends_with("AccumulateGrad");
  }
  const std::map<std::string_view, double> expected = {
      {"fsdp: all_gather", 10},
      {"fsdp: flat parameter", 20},
      {"fsdp: split", 10},
      {"fsdp: views", 10.0 * static_cast<double>(gradients)},
      {"fsdp: gradients to flat", 10},
      {"fsdp: pre-divide", 10},  // by 4
      {"fsdp: chunk", 10},
      {"fsdp: reduce_scatter", 10},
      {"fsdp: post-divide", 10}};  // by 2
  EXPECT_EQ(host_us, expected);
  double added = 0;
  for (const auto& [name, us] : expected) added += us;
  EXPECT_NEAR(one.cpu_us, alone.cpu_us + added, 1e-6);
  fsdp.world = 2;  // divided before the sum alone
  const Prediction two = predict(fsdp);
  EXPECT_EQ(std::ranges::count(two.ops, "fsdp: post-divide", &PredictedOp::name), 0);
  EXPECT_EQ(std::ranges::count(two.ops, "fsdp: pre-divide", &PredictedOp::name), 1);
}

TEST_F(ScaleOutTest, ImpossibleRequestsAreErrors) {
  PredictOptions options;
  const Case plain({"a", "drain"}, 5), collective({"a", "allreduce", "drain"}, 5);
  const auto fail_with = [&](const Case& c, const ScaleOut& scale_out) {
    options.scale_out = scale_out;
    const auto made = perfmodel::predict(c.graph, test_support::round_gpu(), c.table, options);
    return made ? "no error" : to_string(made.error());
  };
  EXPECT_NE(fail_with(plain, {.world = 8}).find("found none"), std::string::npos);
  EXPECT_NE(fail_with(plain, {.world = 0}).find("at least 1 rank"), std::string::npos);
  EXPECT_NE(fail_with(collective, {.world = 8, .strategy = ParallelStrategy::kFsdp})
                .find("without collectives"),
            std::string::npos);
  EXPECT_EQ(fail_with(collective, {.world = 8}), "no error");
}

}  // namespace job_test
}  // namespace perfmodel
