#include "perfmodel/graph/detail/trace_ops.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace perfmodel {
namespace trace_ops_test {

// A trace written down as lines of events, in the order of `Trace::host`. Stamps in microseconds.
struct Tiny {
  Trace trace;

  std::int32_t host(HostKind kind, const std::string& name, double start, double duration,
                    std::int32_t thread = 0) {
    while (trace.threads.size() <= static_cast<std::size_t>(thread)) trace.threads.emplace_back();
    trace.host.push_back({.start_ns = static_cast<std::int64_t>(start * 1000),
                          .duration_ns = static_cast<std::int64_t>(duration * 1000),
                          .name = trace.names.intern(name),
                          .thread = thread,
                          .kind = kind});
    return static_cast<std::int32_t>(trace.host.size()) - 1;
  }
  std::int32_t op(double start, double duration, std::int32_t thread = 0) {
    return host(HostKind::kOp, "aten::mm", start, duration, thread);
  }
  std::int32_t label(const std::string& name, double start, double duration) {
    return host(HostKind::kAnnotation, name, start, duration);
  }
  std::int32_t call(double start, double duration, std::int32_t thread = 0) {
    const std::int32_t event = host(HostKind::kCall, "cudaLaunchKernel", start, duration, thread);
    trace.host.back().launches = true;
    return event;
  }
  void kernel(double start, double duration, std::int32_t launch) {
    trace.gpu.push_back({.start_ns = static_cast<std::int64_t>(start * 1000),
                         .duration_ns = static_cast<std::int64_t>(duration * 1000),
                         .launch = launch});
  }
};

using Indices = std::vector<std::int32_t>;

TEST(TraceOps, NestingFollowsTime) {
  Tiny tiny;
  const auto label = tiny.label("## forward ##", 0, 100);
  const auto outer = tiny.op(10, 20), inner = tiny.op(12, 10), launch = tiny.call(15, 2);
  const auto second = tiny.op(30, 5);  // starts where the first ends: a sibling, not inside
  const TraceOps ops = find_trace_ops(tiny.trace);
  EXPECT_EQ(ops.parent, (Indices{-1, label, outer, inner, label}));
  EXPECT_EQ(ops.top_level, (Indices{outer, second}));
  EXPECT_EQ(ops.call_owner[static_cast<std::size_t>(launch)], 0);
}

TEST(TraceOps, ThreadsDoNotNestInOneAnother) {
  Tiny tiny;
  tiny.op(0, 100, 0);
  tiny.op(10, 20, 1);
  const TraceOps ops = find_trace_ops(tiny.trace);
  EXPECT_EQ(ops.top_level, (Indices{0, 1}));
  EXPECT_EQ(ops.parent, (Indices{-1, -1}));
}

TEST(TraceOps, AChildThatOutlivesItsParentHidesWhatItCovers) {
  // 0-10 holds 5-20; an op at 15 is in the long child and is no top-level op.
  Tiny tiny;
  tiny.op(0, 10);
  tiny.op(5, 15);
  tiny.op(15, 1);
  tiny.op(20, 1);
  EXPECT_EQ(find_trace_ops(tiny.trace).top_level, (Indices{0, 3}));
}

TEST(TraceOps, OpsOfNoLengthStandForThemselves) {
  Tiny tiny;
  tiny.op(10, 0);
  tiny.op(10, 0);
  tiny.op(10, 5);
  tiny.op(12, 0);
  EXPECT_EQ(find_trace_ops(tiny.trace).top_level, (Indices{0, 1, 2}));
}

TEST(TraceOps, ALaunchBelongsToTheLastOpThatHasStartedAndNotYetEnded) {
  Tiny tiny;
  tiny.op(10, 10);
  const auto at_end = tiny.call(20, 2);  // op.start <= call.start <= op.end
  const auto outside = tiny.call(25, 1);
  tiny.op(30, 5);
  const auto inside = tiny.call(30, 9);  // longer than its op
  const TraceOps ops = find_trace_ops(tiny.trace);
  EXPECT_EQ(ops.call_owner[static_cast<std::size_t>(at_end)], 0);
  EXPECT_EQ(ops.call_owner[static_cast<std::size_t>(outside)], -1);
  EXPECT_EQ(ops.call_owner[static_cast<std::size_t>(inside)], 1);
}

TEST(TraceOps, OfEqualStampsTheOpMayStandBehindItsCall) {
  Tiny tiny;
  tiny.op(10, 10);
  const auto call = tiny.call(20, 6);  // sorted before the shorter op of its stamp
  tiny.op(20, 6);
  const auto early = tiny.call(40, 6);
  tiny.op(40, 0);
  const TraceOps ops = find_trace_ops(tiny.trace);
  EXPECT_EQ(ops.call_owner[static_cast<std::size_t>(call)], 1);
  EXPECT_EQ(ops.call_owner[static_cast<std::size_t>(early)], 2);
}

TEST(TraceOps, OwnersStayOnTheirThread) {
  Tiny tiny;
  tiny.op(0, 100, 0);
  const auto call = tiny.call(10, 1, 1);
  tiny.op(20, 10, 1);
  const auto owned = tiny.call(21, 1, 1);
  const TraceOps ops = find_trace_ops(tiny.trace);
  EXPECT_EQ(ops.call_owner[static_cast<std::size_t>(call)], -1);
  EXPECT_EQ(ops.call_owner[static_cast<std::size_t>(owned)], 1);
}

TEST(TraceOps, CallsThatLaunchNothingHaveNoOwner) {
  Tiny tiny;
  tiny.op(0, 10);
  tiny.host(HostKind::kCall, "cudaStreamSynchronize", 2, 3);
  EXPECT_EQ(find_trace_ops(tiny.trace).call_owner, (Indices{-1, -1}));
}

TEST(TraceIterations, AreTheProfilerSteps) {
  Tiny tiny;
  tiny.label("ProfilerStep#6", 100, 50);
  tiny.label("ProfilerStep#5", 0, 90);
  tiny.label("Optimizer.step#SGD.step", 80, 5);
  tiny.label("Optimizer.step#SGD.step", 140, 5);
  const auto steps = iterations(tiny.trace);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].name, "ProfilerStep#5");
  EXPECT_EQ(steps[1].begin_ns, 100'000);
  EXPECT_EQ(steps[1].end_ns, 150'000);
}

TEST(TraceIterations, WithoutStepsLieBetweenTheEndsOfOptimizers) {
  Tiny tiny;
  tiny.label("Optimizer.step#SGD.step", 10, 5);
  tiny.label("Optimizer.step#Adam.step", 20, 5);  // not the one that steps most often
  tiny.label("Optimizer.step#SGD.step", 40, 5);
  tiny.label("Optimizer.step#SGD.step", 70, 10);
  tiny.label("Optimizer.step#SGD.step", 72, 5);  // within another
  const auto steps = iterations(tiny.trace);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].name, "after Optimizer.step#SGD.step");
  EXPECT_EQ(steps[0].begin_ns, 15'000);
  EXPECT_EQ(steps[0].end_ns, 45'000);
  EXPECT_EQ(steps[1].end_ns, 80'000);
  tiny.trace.host.resize(1);
  EXPECT_TRUE(iterations(tiny.trace).empty());  // one end bounds nothing
}

TEST(TraceIterations, HoldTheirBeginAndNotTheirEnd) {
  const std::vector<TraceIteration> steps = {{"a", 100, 200}, {"b", 200, 300}, {"c", 350, 400}};
  EXPECT_EQ(iteration_at(steps, 99), -1);
  EXPECT_EQ(iteration_at(steps, 100), 0);
  EXPECT_EQ(iteration_at(steps, 199), 0);
  EXPECT_EQ(iteration_at(steps, 200), 1);
  EXPECT_EQ(iteration_at(steps, 320), -1);
  EXPECT_EQ(iteration_at(steps, 399), 2);
  EXPECT_EQ(iteration_at(steps, 400), -1);
  EXPECT_EQ(iteration_at({}, 5), -1);
}

TEST(TraceIterations, DeviceWorkBelongsToTheStepOfItsLaunch) {
  // The second kernel runs in step 6 but was launched in step 5; the third has no launch.
  Tiny tiny;
  tiny.label("ProfilerStep#5", 0, 100);
  const auto a = tiny.call(10, 5), b = tiny.call(95, 2);
  tiny.label("ProfilerStep#6", 100, 100);
  tiny.kernel(20, 10, a);
  tiny.kernel(150, 10, b);
  tiny.kernel(160, 10, -1);
  EXPECT_EQ(gpu_iterations(tiny.trace, iterations(tiny.trace)), (Indices{0, 0, -1}));
}

TEST(UnionLength, CountsOverlapsOnce) {
  using Spans = std::vector<std::pair<std::int64_t, std::int64_t>>;
  Spans spans = {{10, 20}, {0, 5}, {15, 30}, {30, 31}, {16, 17}, {50, 50}};
  EXPECT_EQ(union_length(spans), 26);  // 5 + (30 - 10) + 1
  Spans none;
  EXPECT_EQ(union_length(none), 0);
}

}  // namespace trace_ops_test
}  // namespace perfmodel
