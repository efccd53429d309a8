#include "perfmodel/detail/kernel_times.hpp"

#include <gtest/gtest.h>

#include <string>

#include "tiny_run.hpp"

namespace perfmodel {
namespace kernel_times_test {

using test_support::TinyRun;

KernelTimes times_of(const ExecutionGraph& graph, const Trace& trace,
                     const std::optional<std::pair<std::size_t, std::size_t>>& window = {}) {
  auto times = kernel_times(graph, trace, window);
  if (!times) {
    ADD_FAILURE() << to_string(times.error());
    return {};
  }
  return std::move(*times);
}

TEST(KernelTimes, AreMeansPerNodeAndOrdinal) {
  KernelTimes times;
  times.add(3, 0, 10, false);
  times.add(3, 0, 20, false);
  times.add(3, 0, 60, false);
  times.add(3, 1, 7, true);
  ASSERT_NE(times.find(3, 0), nullptr);
  EXPECT_DOUBLE_EQ(times.find(3, 0)->us, 30);
  EXPECT_EQ(times.find(3, 0)->count, 3u);
  EXPECT_FALSE(times.find(3, 0)->collective);
  EXPECT_TRUE(times.find(3, 1)->collective);
  EXPECT_EQ(times.find(3, 2), nullptr);
  EXPECT_EQ(times.find(4, 0), nullptr);
  EXPECT_EQ(times.size(), 2u);
}

TEST(KernelTimes, BelongToTheNodeThatMakesTheCall) {
  // Nodes: root 0, outer 1, inner 2.
  TinyRun run;
  run.op("outer", [&] {
    run.launch(4, 11);
    run.op("inner", [&] {
      run.launch(4, 22);
      run.set(4, 3);
    });
    run.launch(4, 33, 20, "ncclDevKernel_AllReduce");
    run.blocking_copy(10, 5, 1);
    run.sync(1);
  });
  const KernelTimes times = times_of(run.graph(), run.trace());
  EXPECT_EQ(times.source, "tiny.json");
  ASSERT_EQ(times.size(), 5u);  // the synchronise is no device call
  EXPECT_DOUBLE_EQ(times.find(1, 0)->us, 11);
  EXPECT_DOUBLE_EQ(times.find(1, 1)->us, 33);
  EXPECT_TRUE(times.find(1, 1)->collective);
  EXPECT_DOUBLE_EQ(times.find(1, 2)->us, 5);
  EXPECT_DOUBLE_EQ(times.find(2, 0)->us, 22);
  EXPECT_DOUBLE_EQ(times.find(2, 1)->us, 3);
}

TEST(KernelTimes, KernelsOfAStreamWhoseStampsOverlapHaveNoGap) {
  TinyRun run;
  run.op("a", [&] {
    run.launch(4, 30);
    run.launch(4, 30);
    run.sync(1);
  });
  Trace& trace = run.trace();
  for (HostEvent& event : trace.host) {  // only then gaps are kept
    if (trace.name(event).ends_with("StreamSynchronize"))
      event.name = trace.names.intern("cudaStreamWaitEvent");
  }
  const auto gap_us = [&] { return times_of(run.graph(), trace).find(1, 1)->gap_us; };
  EXPECT_NEAR(gap_us().value(), TinyRun::kKernelGap, 1e-9);
  trace.gpu[1].start_ns -= 1500;
  EXPECT_EQ(gap_us(), 0);
}

TEST(KernelTimes, RepetitionsOfAStepAreAveraged) {
  TinyRun step, repeated;
  step.op("a", [&] { step.launch(4, 1); });
  for (double us : {10.0, 20.0, 60.0}) {
    repeated.op("a", [&] { repeated.launch(4, us); });
    repeated.spend(1);
  }
  // Another recording: its ids say nothing about this graph.
  for (HostEvent& event : repeated.trace().host) event.record_function_id = 0;
  const KernelTimes times = times_of(step.graph(), repeated.trace());
  ASSERT_NE(times.find(1, 0), nullptr);
  EXPECT_DOUBLE_EQ(times.find(1, 0)->us, 30);
  EXPECT_EQ(times.find(1, 0)->count, 3u);
}

TEST(KernelTimes, AWindowUsesItsIterationsOnly) {
  TinyRun run;
  for (int step = 1; step <= 3; ++step) {
    run.label("ProfilerStep#" + std::to_string(step),
              [&] { run.op("a", [&] { run.launch(4, 10 * step); }); });
  }
  // Nodes: root, step, a, step, a, step, a.
  const KernelTimes times = times_of(run.graph(), run.trace(), std::pair{1, 3});
  EXPECT_EQ(times.find(2, 0), nullptr);
  ASSERT_NE(times.find(4, 0), nullptr);
  EXPECT_DOUBLE_EQ(times.find(4, 0)->us, 20);
  EXPECT_DOUBLE_EQ(times.find(6, 0)->us, 30);
  for (auto window : {std::pair{0, 4}, std::pair{2, 2}, std::pair{3, 4}}) {
    EXPECT_FALSE(kernel_times(run.graph(), run.trace(), window));
  }
}

TEST(KernelTimes, AGraphLaunchCountsAsTheSumOfItsWork) {
  TinyRun run;
  run.op("replay", [&] { run.launch(4, 5); });
  Trace& trace = run.trace();
  trace.host.back().name = trace.names.intern("cudaGraphLaunch");
  GpuEvent second = trace.gpu.front();
  second.start_ns += 10'000;
  second.duration_ns = 7'000;
  trace.gpu.push_back(second);
  const KernelTimes times = times_of(run.graph(), trace);
  ASSERT_NE(times.find(1, 0), nullptr);
  EXPECT_DOUBLE_EQ(times.find(1, 0)->us, 12);
}

TEST(KernelTimes, AnotherProgramIsAnError) {
  TinyRun run, other;
  run.op("a", [&] { run.launch(4, 5); });
  other.op("b", [&] { other.launch(4, 5); });
  EXPECT_FALSE(kernel_times(other.graph(), run.trace()));
}

}  // namespace kernel_times_test
}  // namespace perfmodel
