#include "perfmodel/trace_analysis.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "../scratch.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/trace_comparison.hpp"
#include "perfmodel/detail/trace_ranks.hpp"
#include "perfmodel/detail/trace_report.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/predict.hpp"
#include "trace/intervals.hpp"
#include "trace/moved_kernel_times.hpp"

namespace perfmodel {
namespace trace_analysis_test {

// Events of one trace in text; stamps are microseconds.
class Events {
 public:
  Events& host(const std::string& category, const std::string& name, double at, double us,
               const std::string& args = "") {
    return add(category, name, "1", "1", at, us, args);
  }
  Events& op(const std::string& name, double at, double us, const std::string& args = "") {
    return host("cpu_op", name, at, us, args);
  }
  Events& launch(int correlation, double at, double us) {
    return host("cuda_runtime", "cudaLaunchKernel", at, us,
                fmt::format("\"correlation\": {}", correlation));
  }
  Events& device(const std::string& category, const std::string& name, int correlation, int stream,
                 double at, double us, const std::string& args = "") {
    return add(category, name, "0", std::to_string(stream), at, us,
               fmt::format("\"correlation\": {}, \"device\": 0, \"stream\": {}{}{}", correlation,
                           stream, args.empty() ? "" : ", ", args));
  }
  Events& kernel(const std::string& name, int correlation, int stream, double at, double us,
                 const std::string& args = "") {
    return device("kernel", name, correlation, stream, at, us, args);
  }

  Trace read() const {
    const auto file = test_support::scratch() / "trace_analysis.json";
    std::ofstream(file) << "{\"deviceProperties\": [{\"id\": 0, \"name\": \"Tesla V100\"}], "
                           "\"traceEvents\": [" +
                               text_ + "]}";
    auto trace = read_trace(file);
    EXPECT_TRUE(trace) << trace.error().message;
    std::filesystem::remove(file);
    return std::move(*trace);
  }
  TraceAnalysis analyse() const {
    auto made = perfmodel::analyse(read(), {}, nullptr);
    EXPECT_TRUE(made);
    return std::move(*made);
  }

 private:
  Events& add(const std::string& category, const std::string& name, const std::string& pid,
              const std::string& tid, double at, double us, const std::string& args) {
    text_ += fmt::format(
        "{}{{\"ph\": \"X\", \"cat\": \"{}\", \"name\": \"{}\", \"pid\": {}, \"tid\": {}, "
        "\"ts\": {}, \"dur\": {}, \"args\": {{{}}}}}",
        text_.empty() ? "" : ",\n", category, name, pid, tid, at, us, args);
    return *this;
  }
  std::string text_;
};

const TraceAnalysis::Op& op_named(const TraceAnalysis& analysis, const std::string& name) {
  for (const auto& op : analysis.ops) {
    if (op.name == name) return op;
  }
  ADD_FAILURE() << "no op " << name;
  return analysis.ops.front();
}

TEST(TraceIntervals, UnionIntersectionAndDifference) {
  const Intervals a = merged({{5, 8}, {0, 2}, {7, 9}, {2, 3}, {4, 4}});
  EXPECT_EQ(a, (Intervals{{0, 3}, {5, 9}}));
  EXPECT_EQ(total_length(a), 7);
  EXPECT_EQ(common(a, {{1, 6}}), (Intervals{{1, 3}, {5, 6}}));
  EXPECT_EQ(without(a, {{1, 2}, {8, 20}}), (Intervals{{0, 1}, {2, 3}, {5, 8}}));
  EXPECT_EQ(without(a, {}), a);
}

TEST(TraceBreakdown, ExposedIsWhatNoComputeCovers) {
  // compute 0-10 and 30-34 (a set), collective 5-20, copy 18-25: busy 0-25 and 30-34.
  const TraceAnalysis analysis = Events()
                                     .kernel("gemm", 1, 7, 0, 10)
                                     .kernel("ncclKernel_AllReduce", 2, 8, 5, 15)
                                     .device("gpu_memcpy", "Memcpy DtoD", 3, 9, 18, 7)
                                     .device("gpu_memset", "Memset (Device)", 4, 7, 30, 4)
                                     .analyse();
  const auto& at = analysis.breakdown;
  EXPECT_DOUBLE_EQ(at.compute_us, 14);
  EXPECT_DOUBLE_EQ(at.compute_kernel_us, 10);
  EXPECT_DOUBLE_EQ(at.comm_us, 15);
  EXPECT_DOUBLE_EQ(at.exposed_comm_us, 10);
  EXPECT_DOUBLE_EQ(at.memcpy_us, 7);
  EXPECT_DOUBLE_EQ(at.exposed_memcpy_us, 5);
  EXPECT_DOUBLE_EQ(at.busy_us, 29);
  EXPECT_DOUBLE_EQ(at.idle_us, 5);
  EXPECT_DOUBLE_EQ(at.span_us, 34);
  EXPECT_DOUBLE_EQ(*at.comm_overlap_fraction, 5.0 / 15);
}

TEST(TraceIdle, GapsByWhatTheNextTaskWaitedFor) {
  // Launched at 12, after the end at 10: the host was late. Launched at 1: a short and a long gap.
  const TraceAnalysis analysis = Events()
                                     .op("a", 0, 20)
                                     .launch(1, 0, 1)
                                     .launch(3, 1, 1)
                                     .launch(4, 2, 1)
                                     .launch(2, 12, 1)
                                     .kernel("x", 1, 7, 5, 5)
                                     .kernel("x", 2, 7, 15, 5)
                                     .kernel("x", 3, 7, 49.5, 5)
                                     .kernel("x", 4, 7, 84.5, 1)
                                     .analyse();
  ASSERT_EQ(analysis.idle.size(), 1U);
  EXPECT_DOUBLE_EQ(analysis.idle[0].host_wait_us, 5);
  EXPECT_DOUBLE_EQ(analysis.idle[0].kernel_wait_us, 29.5);  // below 30
  EXPECT_DOUBLE_EQ(analysis.idle[0].other_us, 30);          // not below
}

TEST(TraceQueue, OneValuePerChange) {
  // Launches at 0 and 2, starts at 3 and 10: lengths 1, 2, 1, 0.
  const TraceAnalysis analysis = Events()
                                     .launch(1, 0, 1)
                                     .launch(2, 2, 1)
                                     .kernel("x", 1, 7, 3, 5)
                                     .kernel("x", 2, 7, 10, 0.5)
                                     .analyse();
  ASSERT_EQ(analysis.queue_length.size(), 1U);
  EXPECT_EQ(analysis.queue_length[0].changes, 4U);
  EXPECT_DOUBLE_EQ(analysis.queue_length[0].mean, 1);
  EXPECT_EQ(analysis.queue_length[0].max, 2);
  EXPECT_DOUBLE_EQ(analysis.queue_length[0].at_limit_us, 0);
  EXPECT_EQ(analysis.launch.count, 2U);
  EXPECT_DOUBLE_EQ(analysis.launch.mean_us, 4.5);  // 2 and 7
  EXPECT_EQ(analysis.launch.shorter_than_launch, 1U);
}

TEST(TraceOps, SelfIsWithoutOpsAndCallsInside) {
  const TraceAnalysis analysis = Events()
                                     .op("outer", 0, 100)
                                     .host("user_annotation", "region", 5, 60)
                                     .op("inner", 10, 40)
                                     .launch(1, 20, 5)
                                     .launch(2, 70, 6)
                                     .kernel("k1", 1, 7, 30, 11)
                                     .kernel("k2", 2, 7, 80, 7)
                                     .kernel("k3", 3, 7, 90, 2)
                                     .analyse();
  const auto& outer = op_named(analysis, "outer");
  EXPECT_DOUBLE_EQ(outer.host_total_us, 100);
  EXPECT_DOUBLE_EQ(outer.host_self_us, 54);
  EXPECT_DOUBLE_EQ(outer.device_self_us, 7);
  EXPECT_DOUBLE_EQ(outer.device_total_us, 18);
  ASSERT_EQ(outer.kernels.size(), 1U);
  EXPECT_EQ(outer.kernels[0].name, "k2");
  EXPECT_DOUBLE_EQ(op_named(analysis, "inner").host_self_us, 35);
  EXPECT_DOUBLE_EQ(analysis.device_outside_ops_us, 2);
  EXPECT_TRUE(analysis.ops_by_shape.empty());
  EXPECT_THAT(analysis.warnings, testing::Contains(testing::HasSubstr("no shapes")));
}

TEST(TraceOps, WhatACheckpointRunsAgainIsToldFromForward) {
  const TraceAnalysis analysis =
      Events()
          .op("aten::mm", 0, 10)
          .launch(1, 1, 1)
          .kernel("gemm", 1, 7, 3, 4)
          .op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 20, 40)
          .op("CheckpointFunctionBackward", 21, 38)
          .op("aten::mm", 22, 10)
          .launch(2, 23, 1)
          .kernel("gemm", 2, 7, 30, 5)
          .op("autograd::engine::evaluate_function: MmBackward0", 40, 15)
          .op("aten::mm", 41, 10)
          .launch(3, 42, 1)
          .kernel("gemm", 3, 7, 50, 6)
          .analyse();
  EXPECT_DOUBLE_EQ(analysis.phases.forward_us, 4);
  EXPECT_DOUBLE_EQ(analysis.phases.recompute_us, 5);
  EXPECT_DOUBLE_EQ(analysis.phases.backward_us, 6);
  EXPECT_DOUBLE_EQ(op_named(analysis, "aten::mm").recomputed_us, 5);
}

TEST(TraceSplit, EachMomentCountsOnce) {
  // The device goes on until 130; its window ends there.
  const TraceAnalysis analysis =
      Events()
          .host("user_annotation", "ProfilerStep#1", 0, 100)
          .host("user_annotation", "enumerate(DataLoader)#x.__next__", 0, 10)
          .op("a", 20, 30)
          .launch(1, 25, 10)
          .kernel("x", 1, 7, 30, 100)
          .analyse();
  ASSERT_EQ(analysis.splits.size(), 1U);
  const auto& split = analysis.splits[0];
  EXPECT_DOUBLE_EQ(split.window_us, 130);
  EXPECT_DOUBLE_EQ(split.kernel_us, 100);
  EXPECT_DOUBLE_EQ(split.runtime_us, 5);
  EXPECT_DOUBLE_EQ(split.data_loader_us, 10);
  EXPECT_DOUBLE_EQ(split.op_us, 5);
  EXPECT_DOUBLE_EQ(split.other_us, 10);
}

TEST(TraceCollectives, BandwidthsFromTheRecordedSize) {
  // 1,000,000 floats in 100 us: 40 GB/s; on 4 ranks each link carries 1.5 times as much.
  const std::string note =
      "\"Collective name\": \"allreduce\", \"In msg nelems\": 1000000, \"Out msg nelems\": "
      "1000000, "
      "\"Group size\": 4, \"dtype\": \"Float\", \"Process Group Name\": \"0\"";
  const TraceAnalysis analysis =
      Events().kernel("ncclDevKernel_AllReduce", 1, 8, 0, 100, note).analyse();
  ASSERT_EQ(analysis.collectives.size(), 1U);
  const auto& at = analysis.collectives[0];
  EXPECT_EQ(at.name, "all_reduce");
  EXPECT_EQ(at.elements, 1000000);
  EXPECT_EQ(at.group_size, 4);
  EXPECT_DOUBLE_EQ(*at.algorithm_gb_per_s, 40);
  EXPECT_DOUBLE_EQ(*at.bus_gb_per_s, 60);
  EXPECT_FALSE(at.skew_us);
}

Events one_step(double mm_us, int launches) {
  Events events;
  events.host("user_annotation", "ProfilerStep#1", 0, 1000).op("aten::mm", 10, 500);
  for (int i = 0; i < launches; ++i) {
    events.launch(i, 20 + 10 * i, 2).kernel("gemm", i, 7, 100 + 50 * i, mm_us);
  }
  events.op("aten::relu", 600, 50).launch(99, 610, 2).kernel("relu", 99, 7, 900, 8);
  return events;
}

TraceComparison compared(const Events& a, const Events& b) {
  const Trace traces[] = {a.read(), b.read()};
  const std::pair<std::size_t, std::size_t> all(0, 1);
  const auto before = report(traces[0], all), after = report(traces[1], all);
  const auto x = analyse(traces[0], all, nullptr), y = analyse(traces[1], all, nullptr);
  auto made = compare({*before, *x}, {*after, *y});
  EXPECT_TRUE(made) << made.error().message;
  return std::move(*made);
}

TEST(TraceComparison, ATraceAndItselfDifferInNothing) {
  const TraceComparison made = compared(one_step(10, 3), one_step(10, 3));
  EXPECT_TRUE(made.ops.empty());
  EXPECT_TRUE(made.kernels.empty());
  for (const auto& term : made.terms) EXPECT_DOUBLE_EQ(term.before_us, term.after_us) << term.name;
}

TEST(TraceComparison, DoubledKernelsOfOneOpAreThatOpAndThatAmount) {
  const TraceComparison made = compared(one_step(10, 3), one_step(20, 3));
  ASSERT_EQ(made.ops.size(), 1U);
  EXPECT_EQ(made.ops[0].op, "aten::mm");
  EXPECT_DOUBLE_EQ(made.ops[0].change_us(), 30);
  ASSERT_EQ(made.kernels.size(), 1U);
  EXPECT_EQ(made.kernels[0].kernel, "gemm");
  EXPECT_DOUBLE_EQ(made.kernels[0].change_us(), 30);
  double change = 0;
  for (const auto& term : made.terms) change += term.after_us - term.before_us;
  EXPECT_NEAR(change, made.step_after_us - made.step_before_us, 1e-9);
}

TEST(TraceComparison, AddedAndRemovedKernelsHaveNoTimeOnOneSide) {
  const TraceComparison made = compared(one_step(10, 3), one_step(10, 5));
  ASSERT_EQ(made.kernels.size(), 1U);
  EXPECT_DOUBLE_EQ(made.kernels[0].count_before, 3);
  EXPECT_DOUBLE_EQ(made.kernels[0].count_after, 5);
  EXPECT_DOUBLE_EQ(made.kernels[0].change_us(), 20);
}

TEST(TraceComparison, DifferentJobsAreSaid) {
  const Events other = Events().op("aten::bmm", 0, 50).launch(1, 5, 2).kernel("b", 1, 7, 20, 5);
  const Trace traces[] = {one_step(10, 1).read(), other.read()};
  const auto before = report(traces[0]), after = report(traces[1]);
  const auto x = analyse(traces[0], {}, nullptr), y = analyse(traces[1], {}, nullptr);
  const auto made = compare({*before, *x}, {*after, *y});
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().message, testing::HasSubstr("expected two traces of one program"));
}

TEST(TraceRanksTable, TheLastRankMakesTheOthersWait) {
  // Rank 1 comes 30 us after rank 0; both end together.
  const auto rank = [](double start, double compute) {
    return Events()
        .op("a", 0, 10)
        .launch(1, 1, 1)
        .launch(2, 3, 1)
        .kernel("gemm", 1, 7, 5, compute)
        .kernel("ncclKernel_AllReduce", 2, 8, start, 150 - start)
        .read();
  };
  const Trace traces[] = {rank(100, 20), rank(130, 40)};
  const auto made = compare_ranks(traces, {});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->matched, 1U);
  ASSERT_TRUE(made->straggler);
  EXPECT_EQ(*made->straggler, 1U);
  EXPECT_NEAR(made->ranks[0].waiting_us, 30, 0.01);
  EXPECT_NEAR(made->ranks[1].caused_us, 30, 0.01);
  EXPECT_NEAR(made->compute_imbalance, 40.0 / 30 - 1, 1e-9);
  ASSERT_EQ(made->collectives.size(), 1U);
  EXPECT_NEAR(*made->collectives[0].skew_us, 30, 0.01);
}

TEST(TraceAnalysisWarnings, TwoDevicesAreNamed) {
  Events events;
  events.op("a", 0, 50).launch(1, 5, 2).kernel("b", 1, 7, 20, 5);
  events.kernel("c", 2, 7, 30, 5, "\"device\": 1");
  EXPECT_THAT(events.analyse().warnings, testing::Contains(testing::HasSubstr("devices 0, 1")));
}

// 8,000 B in 4 us are 2 GB/s, 3,000 B in 3 us are 1 GB/s; between 12 and 14 us both run.
TEST(TraceAnalysis, BandwidthOfCopiesOverTime) {
  const TraceAnalysis made =
      Events()
          .op("aten::copy_", 0, 5)
          .device("gpu_memcpy", "Memcpy HtoD", 1, 7, 10, 4, "\"bytes\": 8000")
          .device("gpu_memcpy", "Memcpy HtoD", 2, 8, 12, 3, "\"bytes\": 3000")
          .analyse();
  ASSERT_EQ(made.copy_bandwidth.size(), 4U);
  const double at[] = {10, 12, 14, 15}, rate[] = {2, 3, 1, 0};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_DOUBLE_EQ(made.copy_bandwidth[i].time_us, at[i]);
    EXPECT_NEAR(made.copy_bandwidth[i].gb_per_s, rate[i], 1e-12);
  }
}

TEST(TraceAnalysis, CountersOfCupti) {
  const TraceAnalysis made =
      Events()
          .op("aten::mm", 0, 5)
          .host("cuda_profiler_range", "0", 1, 1, "\"inst.sum\": 4")
          .host("cuda_profiler_range", "1", 2, 1, "\"inst.sum\": 10, \"bytes.sum\": 1")
          .analyse();
  ASSERT_EQ(made.counters.size(), 2U);
  EXPECT_EQ(made.counters[0].name, "bytes.sum");
  EXPECT_EQ(made.counters[1].ranges, 2U);
  EXPECT_EQ(made.counters[1].total, 14);
  EXPECT_EQ(made.counters[1].least, 4);
  EXPECT_EQ(made.counters[1].most, 10);
}

// The second rank's clock is 100 us ahead: on one clock both ranks' collectives end together.
TEST(TraceAnalysis, RanksOnOneTimeline) {
  const std::string note =
      R"("Collective name": "allreduce", "In msg nelems": 64, "Out msg nelems": 64, )"
      R"("Group size": 2, "dtype": "Float", "Seq": 1, "Process Group Name": "0")";
  const std::vector<Trace> traces = {
      Events().launch(1, 0, 5).kernel("ncclAllReduce", 1, 7, 10, 20, note).read(),
      Events().launch(1, 100, 5).kernel("ncclAllReduce", 1, 7, 112, 18, note).read()};
  const auto ranks = compare_ranks(traces, {});
  ASSERT_TRUE(ranks) << ranks.error().message;
  const auto file = test_support::scratch() / "ranks_on_one_timeline.json";
  ASSERT_TRUE(write_ranks_timeline(traces, *ranks, file));
  // Ranks in one file are for viewers, no trace of one process.
  EXPECT_FALSE(read_trace(file).has_value());
  const auto merged = nlohmann::json::parse(std::ifstream(file));
  std::filesystem::remove(file);
  std::vector<double> ends, durations;
  for (const auto& event : merged.at("traceEvents")) {
    if (event.value("cat", "") != "kernel") continue;
    durations.push_back(event.at("dur"));
    ends.push_back(event.at("ts").get<double>() + durations.back());
  }
  ASSERT_EQ(ends.size(), 2U);
  EXPECT_NEAR(ends[0], ends[1], 1e-3);
  EXPECT_NEAR(std::abs(durations[0] - durations[1]), 2, 1e-3);
}

// 100 us each on an A100: TF32 at 156 TFLOP/s, fp32 at 19.5, half types at 312; MI300X has 163.4
// for fp32 and 1307.4 for half types, H100 494.7 for TF32.
TEST(MovedKernelTimes, ProductsMoveByTheTypeThatTheirKernelsName) {
  Trace trace = Events()
                    .op("aten::mm", 0, 10)
                    .launch(1, 1, 5)
                    .kernel("cutlass_80_tensorop_s1688gemm_256x64", 1, 7, 20, 100)
                    .op("aten::bmm", 200, 10)
                    .launch(2, 201, 5)
                    .kernel("ampere_sgemm_128x64_nn", 2, 7, 220, 100)
                    .op("aten::addmm", 400, 10)
                    .launch(3, 401, 5)
                    .kernel("ampere_fp16_s16816gemm_fp16_128x64", 3, 7, 420, 100)
                    .read();
  trace.devices = {{0, "NVIDIA A100-SXM4-40GB"}};
  const auto made = graph_from_trace(trace);
  ASSERT_TRUE(made);
  const auto data = find_data_folder();
  ASSERT_TRUE(data);
  const auto times_on = [&](const char* gpu) {
    const auto moved =
        kernel_times_on(made->graph, trace, find_known_gpu(gpu, *data / "gpus").value());
    EXPECT_TRUE(moved);
    std::vector<double> times;
    for (const char* op : {"aten::mm", "aten::bmm", "aten::addmm"}) {
      for (std::size_t i = 0; i < made->graph.nodes.size(); ++i) {
        if (made->graph.name(made->graph.nodes[i]) != op) continue;
        const auto* time = moved->times.find(static_cast<std::int32_t>(i), 0);
        EXPECT_TRUE(time);
        times.push_back(time ? time->us : 0);
      }
    }
    return times;
  };
  using testing::DoubleNear;
  EXPECT_THAT(
      times_on("mi300x"),
      testing::ElementsAre(DoubleNear(95.47, 0.1), DoubleNear(11.93, 0.1), DoubleNear(23.86, 0.1)));
  EXPECT_THAT(times_on("h100-sxm-80gb").front(), DoubleNear(31.53, 0.1));
}

// A custom fused kernel and an op that has a model.
Trace with_an_unknown_op() {
  const char* sizes = R"("Input Dims": [[4096, 4096]], "Input type": ["float"])";
  Trace trace = Events()
                    .op("aten::relu", 0, 10, sizes)
                    .launch(1, 1, 5)
                    .kernel("vectorized_elementwise_kernel", 1, 7, 20, 300)
                    .op("mine::fused", 20, 10, sizes)
                    .launch(2, 21, 5)
                    .kernel("my_kernel", 2, 7, 330, 100)
                    .read();
  trace.devices = {{0, "NVIDIA A100-SXM4-40GB"}};
  return trace;
}

// Times of the kernels of both ops on a GPU, from a graph of the trace.
std::vector<double> kernels_on(const char* gpu_name, const Trace& trace,
                               const ExecutionGraph& traced, const ExecutionGraph& asked) {
  const auto data = find_data_folder().value();
  const Gpu gpu = find_known_gpu(gpu_name, data / "gpus").value();
  const OverheadSource source{.trace = &trace, .graph = &traced};
  const OverheadTable table = extract_overheads(std::span(&source, 1), {}).value();
  const auto moved = kernel_times_on(traced, trace, gpu).value();
  EXPECT_EQ(moved.use, KernelTimes::Use::kUnpriced);
  const auto prediction =
      predict(asked, gpu, table, {.kernel_times = &moved.times, .use = moved.use}).value();
  EXPECT_EQ(prediction.coverage.traced_kernels, 1U);
  std::vector<double> times;
  for (const auto& op : prediction.ops) {
    for (const auto& kernel : op.kernels) times.push_back(kernel.price.time.count());
  }
  return times;
}

TEST(MovedKernelTimes, OnlyWhatNoModelKnowsTakesTheTimeOfTheTrace) {
  const Trace trace = with_an_unknown_op();
  const ExecutionGraph graph = graph_from_trace(trace).value().graph;
  const auto same = kernels_on("a100-sxm-40gb", trace, graph, graph);
  ASSERT_EQ(same.size(), 2U);
  // 64 MiB read and as much written at 1,555 GB/s are 86 us; the trace says 300.
  EXPECT_GT(same[0], 86);
  EXPECT_LT(same[0], 120);
  EXPECT_DOUBLE_EQ(same[1], 100);
  // By the bandwidths, 3,350 GB/s on an H100.
  EXPECT_NEAR(kernels_on("h100-sxm-80gb", trace, graph, graph)[1], 100 * 1555.0 / 3350, 1);
}

// As measured: nothing is known that could scale it.
TEST(MovedKernelTimes, StayOfAGpuWithoutAFile) {
  for (const char* name : {"NVIDIA H99 Super", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", ""}) {
    Trace trace = with_an_unknown_op();
    trace.devices = {{0, name}};
    const ExecutionGraph graph = graph_from_trace(trace).value().graph;
    EXPECT_DOUBLE_EQ(kernels_on("h100-sxm-80gb", trace, graph, graph)[1], 100) << name;
  }
}

TEST(MovedKernelTimes, AFileOfTheUsersOwnMayBeTheTracesGpu) {
  Trace trace = with_an_unknown_op();
  trace.devices = {{0, "NVIDIA H99 Super"}};
  const ExecutionGraph graph = graph_from_trace(trace).value().graph;
  Gpu gpu = find_known_gpu("t4", find_data_folder().value() / "gpus").value();
  gpu.name = "h99";
  EXPECT_NE(kernel_times_on(graph, trace, gpu).value().times.other_gpu, "");
  gpu.aliases = {"NVIDIA H99 Super"};
  EXPECT_EQ(kernel_times_on(graph, trace, gpu).value().times.other_gpu, "");
}

TEST(MovedKernelTimes, WorkThatNoModelKnowsGrowsWithItsTensors) {
  const Trace trace = with_an_unknown_op();
  const ExecutionGraph graph = graph_from_trace(trace).value().graph;
  const ExecutionGraph twice = set_batch_size(graph, {.batch = 8192, .current = 4096}).value();
  EXPECT_DOUBLE_EQ(kernels_on("a100-sxm-40gb", trace, graph, twice)[1], 200);
}

}  // namespace trace_analysis_test
}  // namespace perfmodel
