#include "core/call_waits.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace perfmodel {
namespace call_waits_test {

// A trace of calls and device work, given in `Trace`'s order. Stamps in microseconds.
struct Tiny {
  Trace trace;

  std::int32_t call(const std::string& name, double start, double duration, std::int32_t thread = 0,
                    std::int64_t correlation = -1) {
    while (trace.threads.size() <= static_cast<std::size_t>(thread)) trace.threads.emplace_back();
    trace.host.push_back({.start_ns = static_cast<std::int64_t>(start * 1000),
                          .duration_ns = static_cast<std::int64_t>(duration * 1000),
                          .name = trace.names.intern(name),
                          .thread = thread,
                          .kind = HostKind::kCall,
                          .correlation = correlation});
    return static_cast<std::int32_t>(trace.host.size()) - 1;
  }
  std::int32_t work(GpuKind kind, const std::string& name, double start, double duration,
                    std::int32_t launch, std::int64_t stream = 7, std::int64_t bytes = 0) {
    trace.gpu.push_back({.start_ns = static_cast<std::int64_t>(start * 1000),
                         .duration_ns = static_cast<std::int64_t>(duration * 1000),
                         .name = trace.names.intern(name),
                         .kind = kind,
                         .stream = stream,
                         .bytes = bytes,
                         .launch = launch});
    return static_cast<std::int32_t>(trace.gpu.size()) - 1;
  }
  std::int32_t kernel(double start, double duration, std::int32_t launch, std::int64_t stream = 7) {
    return work(GpuKind::kKernel, "k", start, duration, launch, stream);
  }
  CallWait wait_of(std::int32_t call) const {
    return find_call_waits(trace)[static_cast<std::size_t>(call)];
  }
};
using Kind = CallWait::Kind;

TEST(CallWaits, LaunchesDoNotWait) {
  Tiny tiny;
  const auto call =
      tiny.call("cudaLaunchKernel", 0, 500);  // a full queue is not a wait of this kind
  tiny.kernel(5, 600, call);
  EXPECT_EQ(tiny.wait_of(call).kind, Kind::kNone);
}

TEST(CallWaits, AStreamSynchroniseWaitsForTheWorkLaunchedBeforeIt) {
  // The kernel ends at 40, the call starts at 10 and ends at 43: 30 us of its 33 are waiting.
  Tiny tiny;
  const auto launch = tiny.call("cudaLaunchKernel", 0, 5);
  const auto sync = tiny.call("cudaStreamSynchronize", 10, 33);
  const auto kernel = tiny.kernel(6, 34, launch);
  const CallWait wait = tiny.wait_of(sync);
  EXPECT_EQ(wait.kind, Kind::kSync);
  EXPECT_EQ(wait.sync, SyncKind::kStream);
  EXPECT_EQ(wait.task, kernel);
  EXPECT_EQ(wait.wait_ns, 30'000);
}

TEST(CallWaits, WhatHasEndedIsNotWaitedFor) {
  Tiny tiny;
  const auto launch = tiny.call("cudaLaunchKernel", 0, 5);
  const auto sync = tiny.call("cudaDeviceSynchronize", 50, 3);
  tiny.kernel(6, 10, launch);
  EXPECT_EQ(tiny.wait_of(sync).wait_ns, 0);
}

TEST(CallWaits, NothingLaunchedNothingAwaited) {
  Tiny tiny;
  const auto sync = tiny.call("cudaDeviceSynchronize", 50, 3);
  const auto launch = tiny.call("cudaLaunchKernel", 60, 5);  // after the synchronise
  tiny.kernel(66, 10, launch);
  const CallWait wait = tiny.wait_of(sync);
  EXPECT_EQ(wait.kind, Kind::kSync);
  EXPECT_EQ(wait.task, -1);
  EXPECT_EQ(wait.wait_ns, 0);
}

TEST(CallWaits, AWaitIsNeverLongerThanTheCall) {
  // Clocks of host and device differ a little: the kernel seems to end after a device synchronise.
  Tiny tiny;
  const auto launch = tiny.call("cudaLaunchKernel", 0, 5);
  const auto sync = tiny.call("cudaDeviceSynchronize", 10, 20);
  tiny.kernel(6, 26, launch);
  EXPECT_EQ(tiny.wait_of(sync).wait_ns, 20'000);
}

TEST(CallWaits, ADeviceSynchroniseWaitsForEveryStream) {
  Tiny tiny;
  const auto a = tiny.call("cudaLaunchKernel", 0, 2), b = tiny.call("cudaLaunchKernel", 3, 2);
  const auto sync = tiny.call("cudaDeviceSynchronize", 6, 50);
  tiny.kernel(3, 10, a, 7);
  const auto later = tiny.kernel(6, 40, b, 20);
  EXPECT_EQ(tiny.wait_of(sync).task, later);
  EXPECT_EQ(tiny.wait_of(sync).wait_ns, 40'000);  // 46 - 6
}

TEST(CallWaits, WorkThatOutlivesAStreamSynchroniseWasOnAnotherStream) {
  Tiny tiny;
  const auto a = tiny.call("cudaLaunchKernel", 0, 2), b = tiny.call("cudaLaunchKernel", 3, 2);
  const auto sync = tiny.call("cudaStreamSynchronize", 6, 20);
  const auto mine = tiny.kernel(3, 20, a, 7);
  tiny.kernel(6, 400, b, 20);
  EXPECT_EQ(tiny.wait_of(sync).task, mine);
  EXPECT_EQ(tiny.wait_of(sync).wait_ns, 17'000);  // 23 - 6
}

TEST(CallWaits, AfterACopyTheSynchroniseWaitsForTheCopysStream) {
  // Stream 20 has the later end, but the thread has just copied on stream 7.
  Tiny tiny;
  const auto a = tiny.call("cudaLaunchKernel", 0, 2);
  const auto copy = tiny.call("cudaMemcpyAsync", 4, 3);
  const auto sync = tiny.call("cudaStreamSynchronize", 10, 40);
  const auto copied =
      tiny.work(GpuKind::kCopy, "Memcpy DtoH (Device -> Pinned)", 8, 12, copy, 7, 4);
  tiny.kernel(3, 45, a, 20);
  EXPECT_EQ(tiny.wait_of(copy).kind, Kind::kNone);  // it ends before the copy does: pinned
  EXPECT_EQ(tiny.wait_of(sync).task, copied);
  EXPECT_EQ(tiny.wait_of(sync).wait_ns, 10'000);  // 20 - 10
}

TEST(CallWaits, ACopyLongAgoSaysNothing) {
  Tiny tiny;
  const auto a = tiny.call("cudaLaunchKernel", 0, 2);
  const auto copy = tiny.call("cudaMemcpyAsync", 4, 3);
  const auto sync = tiny.call("cudaStreamSynchronize", 300, 40);  // 293 us after the copy call
  tiny.work(GpuKind::kCopy, "Memcpy DtoH (Device -> Pinned)", 8, 2, copy, 7, 4);
  const auto kernel = tiny.kernel(3, 330, a, 20);
  EXPECT_EQ(tiny.wait_of(sync).task, kernel);
  EXPECT_EQ(tiny.wait_of(sync).wait_ns, 33'000);  // 333 - 300
}

TEST(CallWaits, ACopyOfAnotherThreadSaysNothing) {
  Tiny tiny;
  const auto copy = tiny.call("cudaMemcpyAsync", 4, 3, 0);
  const auto a = tiny.call("cudaLaunchKernel", 0, 2, 1);
  const auto sync = tiny.call("cudaStreamSynchronize", 10, 40, 1);
  tiny.work(GpuKind::kCopy, "Memcpy DtoH (Device -> Pinned)", 8, 12, copy, 7, 4);
  const auto kernel = tiny.kernel(3, 45, a, 20);
  EXPECT_EQ(tiny.wait_of(sync).task, kernel);
}

TEST(CallWaits, ASyncRecordDecides) {
  // The record names stream 20; without it the kernel on stream 7, which ends later, would be
  // taken.
  Tiny tiny;
  const auto a = tiny.call("cudaLaunchKernel", 0, 2), b = tiny.call("cudaLaunchKernel", 3, 2);
  const auto sync = tiny.call("cudaStreamSynchronize", 6, 60, 0, 91);
  const auto early = tiny.kernel(3, 20, a, 20);
  tiny.kernel(6, 50, b, 7);
  tiny.trace.syncs.push_back(
      {.kind = tiny.trace.names.intern("Stream Sync"), .stream = 20, .correlation = 91});
  EXPECT_EQ(tiny.wait_of(sync).task, early);
  EXPECT_EQ(tiny.wait_of(sync).wait_ns, 17'000);
}

// ---- copies ------------------------------------------------------------------------------------

TEST(CallWaits, ADeviceToHostCopyThatEndsWithItsCallBlocks) {
  Tiny tiny;
  const auto copy = tiny.call("cudaMemcpyAsync", 10, 30);  // 10-40
  const auto task =
      tiny.work(GpuKind::kCopy, "Memcpy DtoH (Device -> Pageable)", 20, 15, copy, 7, 4);
  const CallWait wait = tiny.wait_of(copy);
  EXPECT_EQ(wait.kind, Kind::kBlockingCopy);
  EXPECT_EQ(wait.task, task);
  EXPECT_EQ(wait.wait_ns, 25'000);  // 35 - 10; the last 5 us are the call's own
}

TEST(CallWaits, ACopyThatOutlivesItsCallDoesNotBlock) {
  Tiny tiny;
  const auto copy = tiny.call("cudaMemcpyAsync", 10, 6);
  tiny.work(GpuKind::kCopy, "Memcpy DtoH (Device -> Pinned)", 17, 15, copy, 7, 1 << 20);
  EXPECT_EQ(tiny.wait_of(copy).kind, Kind::kNone);
}

TEST(CallWaits, SmallHostToDeviceCopiesAreStagedAndDoNotBlock) {
  // 64 KiB and below are copied away by the call itself, even if the device is done before it is.
  Tiny tiny;
  const auto small = tiny.call("cudaMemcpyAsync", 10, 30),
             large = tiny.call("cudaMemcpyAsync", 50, 30);
  tiny.work(GpuKind::kCopy, "Memcpy HtoD (Pageable -> Device)", 12, 3, small, 7, 64 * 1024);
  tiny.work(GpuKind::kCopy, "Memcpy HtoD (Pageable -> Device)", 55, 20, large, 7, 64 * 1024 + 1);
  EXPECT_EQ(tiny.wait_of(small).kind, Kind::kNone);
  EXPECT_EQ(tiny.wait_of(large).kind, Kind::kBlockingCopy);
  EXPECT_EQ(tiny.wait_of(large).wait_ns, 25'000);  // 75 - 50
}

TEST(CallWaits, LargePageableCopiesReturnBeforeTheDeviceIsDone) {
  // Whatever starts inside of its call is being staged; pinned memory is copied after its call, or
  // begins a little before the call ends.
  Tiny tiny;
  const auto near = tiny.call("cudaMemcpyAsync", 0, 100),
             far = tiny.call("cudaMemcpyAsync", 200, 100);
  tiny.work(GpuKind::kCopy, "Memcpy HtoD (Pageable -> Device)", 10, 140, near, 7,
            1 << 20);  // ends at 150
  tiny.work(GpuKind::kCopy, "Memcpy HtoD (Pageable -> Device)", 210, 441, far, 7,
            1 << 20);  // at 651
  const auto pinned = tiny.call("cudaMemcpyAsync", 700, 20),
             early = tiny.call("cudaMemcpyAsync", 1400, 20);
  tiny.work(GpuKind::kCopy, "Memcpy HtoD (Pinned -> Device)", 722, 500, pinned, 7, 1 << 20);
  tiny.work(GpuKind::kCopy, "Memcpy HtoD (Pinned -> Device)", 1412, 500, early, 7, 1 << 20);
  EXPECT_EQ(tiny.wait_of(near).kind, Kind::kBlockingCopy);
  EXPECT_EQ(tiny.wait_of(near).wait_ns, 100'000);  // all of it
  EXPECT_EQ(tiny.wait_of(far).kind, Kind::kBlockingCopy);
  EXPECT_EQ(tiny.wait_of(far).wait_ns, 100'000);
  EXPECT_EQ(tiny.wait_of(pinned).kind, Kind::kNone);
  EXPECT_EQ(tiny.wait_of(early).kind, Kind::kNone);
}

TEST(CallWaits, CopiesOnTheDeviceNeverBlock) {
  Tiny tiny;
  const auto copy = tiny.call("cudaMemcpyAsync", 10, 30);
  tiny.work(GpuKind::kCopy, "Memcpy DtoD (Device -> Device)", 12, 3, copy, 7, 1 << 20);
  EXPECT_EQ(tiny.wait_of(copy).kind, Kind::kNone);
}

TEST(CallWaits, HipsCopyWithStreamBlocksWhateverItsSize) {
  Tiny tiny;
  const auto copy = tiny.call("hipMemcpyWithStream", 10, 30);
  tiny.work(GpuKind::kCopy, "CopyHostToDevice HtoD", 20, 15, copy, 0, 16);
  EXPECT_EQ(tiny.wait_of(copy).kind, Kind::kBlockingCopy);
}

TEST(CallWaits, ACopyWithoutWorkInTheTraceIsNotJudged) {
  Tiny tiny;
  const auto copy = tiny.call("cudaMemcpyAsync", 10, 30);
  EXPECT_EQ(tiny.wait_of(copy).kind, Kind::kNone);
}

// ---- work of calls -----------------------------------------------------------------------------

TEST(WorkOfCalls, ListsTheDeviceWorkOfEachCallInStartOrder) {
  Tiny tiny;
  const auto one = tiny.call("cudaLaunchKernel", 0, 2);
  const auto none = tiny.call("cudaLaunchKernel", 3, 2);
  const auto graph = tiny.call("cudaGraphLaunch", 6, 2);
  const auto a = tiny.kernel(3, 1, one), b = tiny.kernel(9, 1, graph),
             c = tiny.kernel(12, 1, graph);
  tiny.kernel(20, 1, -1);  // launched before the trace began
  const CallWork work = work_of_calls(tiny.trace);
  EXPECT_EQ(work.count(static_cast<std::size_t>(one)), 1u);
  EXPECT_EQ(work.count(static_cast<std::size_t>(none)), 0u);
  EXPECT_EQ(work.count(static_cast<std::size_t>(graph)), 2u);
  EXPECT_EQ(work.work, (std::vector<std::int32_t>{a, b, c}));
}

}  // namespace call_waits_test
}  // namespace perfmodel
