// Replays of made-up traces. The expected result is known twice: as a sum in a comment and from
// running the same program at another pace.
#include "perfmodel/replay.hpp"

#include <gmock/gmock.h>

#include "made_trace.hpp"

namespace perfmodel {
namespace replay_test {

using test_support::MadeTrace;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

using Program = std::function<void(MadeTrace&)>;
constexpr double kExact = 0.01;  // stamps are whole nanoseconds, some hundred of them add up

MadeTrace run(const Program& program, MadeTrace::Pace pace = {}, bool sync_records = false) {
  MadeTrace made(pace);
  made.sync_records = sync_records;
  program(made);
  return made;
}

Replay replay_one(const Trace& trace, const ReplayOptions& options = {}) {
  auto made = replay({&trace, 1}, options);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? std::move(*made) : Replay{.ranks = {{}}};
}

std::string complaint(const Trace& trace, const ReplayOptions& options = {}) {
  const auto made = replay({&trace, 1}, options);
  return made ? "no error" : made.error().message;
}

std::vector<double> replayed_steps(const Replay& replay, std::size_t rank = 0) {
  std::vector<double> steps;
  for (const auto& iteration : replay.ranks[rank].iterations)
    steps.push_back(iteration.replayed_us);
  return steps;
}

// The replay of the program's trace at a pace takes as long as the program at that pace.
void expect_follows(const Program& program, MadeTrace::Pace pace, bool sync_records = false,
                    double tolerance = kExact) {
  SCOPED_TRACE(fmt::format("kernels x {}, host x {}, {} sync records", pace.kernels, pace.host,
                           sync_records ? "with" : "without"));
  const MadeTrace measured = run(program, {}, sync_records), expected = run(program, pace);
  const Replay replay =
      replay_one(measured.trace(), {.scale_kernels = pace.kernels, .scale_host = pace.host});
  const auto& iterations = replay.ranks[0].iterations;
  ASSERT_EQ(iterations.size(), measured.step_walls.size());
  for (std::size_t i = 0; i < iterations.size(); ++i) {
    EXPECT_NEAR(iterations[i].measured_us, measured.step_walls[i], kExact) << i;
    EXPECT_NEAR(iterations[i].replayed_us, expected.step_walls[i], tolerance) << i;
  }
}

void expect_follows_at_every_pace(const Program& program, bool sync_records = false) {
  for (const MadeTrace::Pace pace :
       {MadeTrace::Pace{1, 1}, {0, 1}, {0.5, 1}, {2, 1}, {4, 1}, {1, 0.5}, {1, 2}, {2, 2}}) {
    expect_follows(program, pace, sync_records);
  }
}

std::vector<double> without(const Program& program, ReplayRules rules, bool sync_records = false) {
  return replayed_steps(replay_one(run(program, {}, sync_records).trace(), {.rules = rules}));
}

// ---- one thread, one stream --------------------------------------------------------------------

// The GPU takes 3 x 400; its first kernel begins at 10 + 5 + 2.5.
void three_kernels(MadeTrace& made) {
  made.calibrate();
  for (int i = 0; i < 3; ++i) {
    made.step([&] {
      for (int k = 0; k < 3; ++k) {
        made.op("aten::mm", [&] {
          made.spend(10);
          made.launch(5, 400);
          made.spend(5);
        });
      }
      made.sync_stream(4);
      made.spend(50);
    });
  }
}

TEST(Replay, KernelsAndHostScale) {
  const MadeTrace made = run(three_kernels);
  const Trace trace = made.trace();
  const double expected = 17.5 + 3 * 400 + 2 * 0.75 + 4 + 50;
  EXPECT_NEAR(made.step_walls[1], expected, kExact);
  EXPECT_THAT(replayed_steps(replay_one(trace)), Each(::testing::DoubleNear(expected, kExact)));
  EXPECT_THAT(replayed_steps(replay_one(trace, {.scale_kernels = 0.5})),
              Each(::testing::DoubleNear(expected - 600, kExact)));
  EXPECT_THAT(replayed_steps(replay_one(trace, {.scale_kernels = 2})),
              Each(::testing::DoubleNear(expected + 1200, kExact)));
  // The host's 15 before the first kernel, 4 after the last and 50 twice as long.
  EXPECT_THAT(replayed_steps(replay_one(trace, {.scale_host = 2})),
              Each(::testing::DoubleNear(expected + 15 + 4 + 50, kExact)));
  // Without kernels the host is left: 3 x 20, 4 and 50.
  EXPECT_THAT(replayed_steps(replay_one(trace, {.scale_kernels = 0})),
              Each(::testing::DoubleNear(114, kExact)));
  expect_follows_at_every_pace(three_kernels);
}

TEST(Replay, WaitsAreNotCopied) {
  EXPECT_THAT(without(three_kernels, {.synchronise = false}),
              Each(::testing::DoubleNear(114, kExact)));
}

TEST(Replay, ReportsErrorsPeriodsAndThePath) {
  const Replay replay = replay_one(run(three_kernels).trace());
  const Replay::Rank& rank = replay.ranks[0];
  EXPECT_LT(replay.mean_abs_error, 1e-5);
  EXPECT_EQ(rank.iterations[0].name, "ProfilerStep#1");
  EXPECT_EQ(rank.iterations[0].measured_device_period_us, 0);
  EXPECT_NEAR(rank.iterations[1].measured_device_period_us, 1273, kExact);
  EXPECT_NEAR(rank.iterations[1].replayed_device_period_us, 1273, kExact);
  EXPECT_NEAR(rank.critical_path.step_us, 1273, kExact);
  double sum = 0, kernels = 0;
  for (const auto& share : rank.critical_path.shares) {
    sum += share.us;
    if (share.category == "gemm") kernels = share.us;  // by the kernels' name
  }
  EXPECT_NEAR(sum, 1273, kExact);
  EXPECT_NEAR(kernels, 2.5 + 3 * 400 + 2 * 0.75, kExact);
  EXPECT_TRUE(replay.warnings.empty());
  EXPECT_FALSE(replay.job);
}

TEST(Replay, AWindowReportsItsIterationsOnly) {
  const Trace trace = run(three_kernels).trace();
  const Replay replay =
      replay_one(trace, {.iterations = std::pair<std::size_t, std::size_t>(1, 3)});
  ASSERT_EQ(replay.ranks[0].iterations.size(), 2U);
  EXPECT_EQ(replay.ranks[0].iterations[0].name, "ProfilerStep#2");
  for (const std::pair<std::size_t, std::size_t> window : {std::pair{0U, 4U}, {2U, 2U}, {3U, 4U}}) {
    EXPECT_THAT(complaint(trace, {.iterations = window}),
                HasSubstr("expected iterations within 0:3"));
  }
}

TEST(Replay, ScalesBelowZeroAreRefused) {
  const Trace trace = run(three_kernels).trace();
  EXPECT_THAT(complaint(trace, {.scale_kernels = -1}), HasSubstr("found -1"));
  EXPECT_THAT(complaint(trace, {.scale_host = std::nan("")}), HasSubstr("found nan"));
  EXPECT_FALSE(replay({}));
}

// ---- copies that block -------------------------------------------------------------------------

void read_back(MadeTrace& made) {
  made.calibrate();
  made.step([&] {
    made.op("aten::mm", [&] {
      made.spend(10);
      made.launch(5, 300);
      made.spend(5);
    });
    made.op("aten::item", [&] { made.blocking_copy(20, 6); });
  });
}

TEST(Replay, ReadingBackWaitsForTheKernelsBeforeIt) {
  // Kernel ends at 17.5 + 300, copy 0.75 + 20 later, call 6 after it.
  EXPECT_NEAR(run(read_back).step_walls[0], 344.25, kExact);
  expect_follows_at_every_pace(read_back);
  // Without a kernel the copy begins 9 after its call, which begins at 20.
  EXPECT_NEAR(replayed_steps(replay_one(run(read_back).trace(), {.scale_kernels = 0}))[0],
              20 + 9 + 20 + 6, kExact);
  EXPECT_NEAR(without(read_back, {.blocking_copies = false})[0], 20 + 6, kExact);
}

TEST(Replay, ACopysLatencyIsNotThatOfKernels) {
  // No copy of this trace meets an idle stream: 10 us from its call's begin are assumed.
  const auto program = [](MadeTrace& made) {
    made.step([&] {
      made.op("aten::mm", [&] { made.launch(5, 300); });
      made.op("aten::item", [&] { made.blocking_copy(20, 6); });
    });
  };
  EXPECT_NEAR(replayed_steps(replay_one(run(program).trace(), {.scale_kernels = 0}))[0],
              5 + 10 + 20 + 6, kExact);
}

TEST(Replay, ALargeUploadLetsItsCallGoBeforeItsEnd) {
  const auto program = [](MadeTrace& made) {
    made.calibrate();
    for (int i = 0; i < 2; ++i) {
      made.step([&] {
        made.op("aten::to", [&] { made.upload(400, 1000, 30); });
        made.op("aten::mm", [&] { made.launch(5, 200); });
        made.sync_stream(4);
      });
    }
  };
  // The call takes 1370 and the launch 5; the kernel begins 0.75 after the copy's end at 1400.
  EXPECT_NEAR(run(program).step_walls[0], 1400.75 + 200 + 4, kExact);
  for (double kernels : {0., 0.5, 1., 3.}) expect_follows(program, {kernels, 1});
  // The call only waits: nothing of it is left without the wait, and the kernel waits all the same.
  EXPECT_NEAR(without(program, {.blocking_copies = false, .synchronise = false})[0], 5 + 4, kExact);
}

// ---- synchronisation ---------------------------------------------------------------------------

TEST(Replay, SynchronisingAStreamWithRecords) {
  // Stream 20 ends 1 us after stream 7: only the record says which of them was waited for.
  const auto program = [](MadeTrace& made) {
    made.calibrate();
    made.step([&] {
      made.op("aten::mm", [&] {
        made.launch(5, 100, 7);
        made.launch(5, 96, 20);
      });
      made.sync_stream(4, 7);
    });
  };
  EXPECT_NEAR(run(program).step_walls[0], 7.5 + 100 + 4, kExact);
  expect_follows_at_every_pace(program, true);
  const auto guessed =
      replayed_steps(replay_one(run(program, {}, false).trace(), {.scale_kernels = 0.1}));
  EXPECT_NEAR(guessed[0], 12.5 + 9.6 + 3, kExact);  // the guess: stream 20, and 3 us of own time
}

TEST(Replay, SynchronisingTheDeviceWaitsForEveryStream) {
  const auto program = [](MadeTrace& made) {
    made.calibrate();
    made.step([&] {
      made.op("aten::mm", [&] {
        made.launch(5, 100, 7);
        made.launch(5, 300, 20);
        made.launch(5, 200, 21);
      });
      made.sync_device(4);
    });
  };
  EXPECT_NEAR(run(program).step_walls[0], 12.5 + 300 + 4, kExact);
  expect_follows_at_every_pace(program, false);
  expect_follows_at_every_pace(program, true);
  EXPECT_NEAR(without(program, {.synchronise = false})[0], 19, kExact);
}

TEST(Replay, ADeviceClockThatRunsAheadHidesNoWait) {
  // The kernel's stamps lie 8 us late: it seems to end 4 us after the call that waited for it.
  Trace trace = run(three_kernels).trace();
  for (GpuEvent& event : trace.gpu) event.start_ns += 8000;
  for (HostEvent& event : trace.host) {
    if (trace.name(event) == "cudaStreamSynchronize") {
      event.name = trace.names.intern("cudaDeviceSynchronize");
    }
  }
  const auto steps = replayed_steps(replay_one(trace));
  EXPECT_NEAR(steps[1], 1273, 0.1);
  EXPECT_NEAR(replayed_steps(replay_one(trace, {.scale_kernels = 2}))[1], 1273 + 1200, 10);
}

TEST(Replay, SynchronisingAnEvent) {
  // The second kernel is launched after the event and not waited for.
  const auto program = [](MadeTrace& made) {
    made.calibrate();
    for (int i = 0; i < 2; ++i) {
      made.step([&] {
        made.op("aten::mm", [&] {
          made.launch(5, 300);
          made.record(1);
          made.launch(5, 500);
        });
        made.sync_event(1, 4);
        made.spend(1000);
      });
    }
  };
  EXPECT_NEAR(run(program).step_walls[0], 7.5 + 300 + 4 + 1000, kExact);
  for (bool records : {false, true}) {
    // Twice 500 and the gap do not fill the 1000 after the call, four times do.
    for (double kernels : {0., 0.5, 1., 2.}) expect_follows(program, {kernels, 1}, records);
  }
  expect_follows_at_every_pace(program, true);
  EXPECT_NEAR(without(program, {.synchronise = false})[0], 11 + 4 + 1000, kExact);
}

TEST(Replay, FreeingMemorySynchronisesWhereItWaited) {
  // One call of its name: there is no usual length to compare with.
  const auto program = [](MadeTrace& made) {
    made.calibrate();
    made.step([&] {
      made.op("aten::mm", [&] { made.launch(5, 1000); });
      made.sync_device(40, "cudaFree");
    });
  };
  EXPECT_NEAR(run(program).step_walls[0], 7.5 + 1000 + 40, kExact);
  expect_follows_at_every_pace(program);
  EXPECT_NEAR(without(program, {.synchronise = false})[0], 45, kExact);
  EXPECT_THAT(replay_one(run(program).trace()).warnings, Contains(HasSubstr("inferred")));
}

TEST(Replay, FreeingMemoryThatWaitedForNothingKeepsItsTime) {
  const auto program = [](MadeTrace& made) {
    made.calibrate();
    made.step([&] {
      made.op("aten::mm", [&] { made.launch(5, 5000); });
      made.call("cudaFree", 1000);  // ends before the kernel
      made.sync_stream(4);
    });
  };
  EXPECT_NEAR(run(program).step_walls[0], 7.5 + 5000 + 4, kExact);
  expect_follows(program, {0, 1});
  EXPECT_NEAR(replayed_steps(replay_one(run(program).trace(), {.scale_kernels = 0}))[0], 1009,
              kExact);
}

TEST(Replay, OtherCallsSynchroniseIfLongForTheirName) {
  const auto program = [](MadeTrace& made) {
    made.calibrate();
    for (int i = 0; i < 5; ++i) made.call("cudaMalloc", 20);
    made.step([&] {
      made.op("aten::mm", [&] { made.launch(5, 1000); });
      made.sync_device(40, "cudaMalloc");
    });
  };
  expect_follows_at_every_pace(program);
}

// ---- several streams ---------------------------------------------------------------------------

void side_stream(MadeTrace& made) {
  made.calibrate(20);
  for (int i = 0; i < 2; ++i) {
    made.step([&] {
      made.op("aten::mm", [&] {
        made.spend(10);
        made.launch(5, 300, 7);
        made.record(1, 7);
        made.wait_event(1, 20);
        made.launch(5, 200, 20);
      });
      made.sync_stream(4, 20);
    });
  }
}

TEST(Replay, AStreamWaitsForAnEventOfAnother) {
  EXPECT_NEAR(run(side_stream).step_walls[0], 17.5 + 300 + 3 + 200 + 4, kExact);
  for (bool records : {false, true}) {
    expect_follows_at_every_pace(side_stream, records);
    // Without the wait the second kernel begins 2.5 after its call, which ends at 22. (Without
    // records the call waits for whatever ended last before it did: still that kernel.)
    EXPECT_NEAR(without(side_stream, {.cross_stream = false}, records)[0], 24.5 + 200 + 4, kExact);
  }
}

TEST(Replay, RecordedWaitsAreNotGuessed) {
  // Stream 21 works as well, but the event is one of stream 7.
  const auto program = [](MadeTrace& made) {
    made.calibrate(20);
    made.step([&] {
      made.op("aten::mm", [&] {
        made.launch(5, 50, 21);
        made.launch(5, 300, 7);
        made.record(1, 7);
        made.wait_event(1, 20);
        made.launch(5, 200, 20);
      });
      made.sync_stream(4, 20);
    });
  };
  expect_follows_at_every_pace(program, true);
  const Replay with = replay_one(run(program, {}, true).trace());
  const Replay guessed = replay_one(run(program, {}, false).trace());
  EXPECT_EQ(guessed.edges, with.edges + 1);  // for stream 21
}

TEST(Replay, ALateStartAfterOtherWorkIsAWait) {
  // No event is recorded, no call shows it: the kernel of stream 20 begins when the kernel of 7
  // ends.
  MadeTrace made;
  made.calibrate();
  made.step([&] {
    made.op("aten::mm", [&] {
      made.launch(5, 300, 7);
      made.raw(R"({"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, )" +
               fmt::format(R"("tid": 1, "ts": {:.3f}, "dur": 5, "args": {{"correlation": 777}}}})",
                           made.base_us + made.now()));
      const double start = made.now() + 2.5 + 300 + 2;
      made.raw(R"({"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 20, )" +
               fmt::format(R"("ts": {:.3f}, "dur": 200, "args": {{"device": 0, "stream": 20, )"
                           R"("correlation": 777}}}})",
                           made.base_us + start));
      made.spend(600);
    });
    made.sync_stream(4, 20);
  });
  const Trace trace = made.trace();
  EXPECT_THAT(replay_one(trace).warnings, Contains(HasSubstr("inferred from a late start")));
  // The following call waits for stream 20: 7.5 + 3 x 300 + 2 + 3 x 200.
  const Replay slower = replay_one(trace, {.scale_kernels = 3});
  double last = 0;
  for (const auto& step : slower.ranks[0].critical_path.steps) last += step.us;
  EXPECT_NEAR(last, slower.ranks[0].iterations[0].replayed_us, kExact);
  EXPECT_EQ(slower.warnings.size(), 1U);
}

// ---- host threads ------------------------------------------------------------------------------

void forward_and_backward(MadeTrace& made) {
  made.calibrate();
  for (int i = 0; i < 3; ++i) {
    made.step([&] {
      made.op("aten::linear", [&] { made.spend(100); });
      made.on_thread(2, 80, 90, [&] {
        made.op("AddmmBackward0", [&] {
          made.spend(295);
          made.launch(5, 700);
        });
      });
      made.op("aten::add_", [&] { made.spend(50); });
    });
  }
}

TEST(Replay, ThreadsHandOverToEachOther) {
  EXPECT_NEAR(run(forward_and_backward).step_walls[1], 100 + 80 + 300 + 90 + 50, kExact);
  expect_follows_at_every_pace(forward_and_backward);
  // The other thread's work is no longer waited for, the way back stays.
  EXPECT_THAT(without(forward_and_backward, {.hand_over = false}),
              Each(::testing::DoubleNear(100 + 90 + 50, kExact)));
}

TEST(Replay, WhatTheOtherThreadWaitsForIsWaitedFor) {
  const auto program = [](MadeTrace& made) {
    made.calibrate();
    for (int i = 0; i < 3; ++i) {
      made.step([&] {
        made.op("aten::linear", [&] { made.spend(100); });
        made.on_thread(2, 80, 90, [&] {
          made.op("AddmmBackward0", [&] {
            made.launch(5, 700);
            made.sync_stream(4);
          });
        });
      });
    }
  };
  EXPECT_NEAR(run(program).step_walls[2], 100 + 80 + 7.5 + 700 + 4 + 90, kExact);
  expect_follows_at_every_pace(program);
}

TEST(Replay, AThreadThatAppearsLateHangsOnWhatCameBefore) {
  const auto program = [](MadeTrace& made) {
    made.calibrate();
    for (int i = 0; i < 3; ++i) {
      made.step([&] {
        made.op("aten::linear", [&] {
          made.launch(5, 700);
          made.sync_stream(4);
        });
        if (i < 1) return;
        made.on_thread(3, 60, 70, [&] { made.op("late", [&] { made.spend(40); }); });
      });
    }
  };
  EXPECT_NEAR(run(program).step_walls[0], 711.5, kExact);
  EXPECT_NEAR(run(program).step_walls[1], 711.5 + 60 + 40 + 70, kExact);
  expect_follows_at_every_pace(program);
}

TEST(Replay, TheThreadThatMarksTheStepsMayDoNothingElse) {
  const auto program = [](MadeTrace& made) {
    for (int i = 0; i < 2; ++i) {
      made.step([&] {
        made.on_thread(2, 60, 70, [&] {
          made.op("aten::linear", [&] {
            made.launch(5, 700);
            made.sync_stream(4);
          });
        });
      });
    }
  };
  EXPECT_NEAR(run(program).step_walls[1], 60 + 711.5 + 70, kExact);
  for (double kernels : {0.5, 1., 2.}) expect_follows(program, {kernels, 1});
}

TEST(Replay, ThreadsThatOnlyAskAreLeftOut) {
  const auto program = [](bool watched) {
    return [watched](MadeTrace& made) {
      three_kernels(made);
      if (!watched) return;
      for (int i = 0; i < 50; ++i) {
        made.raw(fmt::format(
            R"({{"ph": "X", "cat": "cuda_runtime", "name": "cudaEventQuery", "pid": 1, )"
            R"("tid": -7, "ts": {}, "dur": 3, "args": {{"correlation": {}}}}})",
            made.base_us + 100 * i, 5000 + i));
      }
    };
  };
  const Replay alone = replay_one(run(program(false)).trace());
  const Replay watched = replay_one(run(program(true)).trace());
  EXPECT_EQ(watched.tasks, alone.tasks);
  EXPECT_EQ(watched.edges, alone.edges);
  EXPECT_EQ(replayed_steps(watched), replayed_steps(alone));
}

TEST(Replay, NothingButQueriesCannotBeReplayed) {
  MadeTrace made;
  made.call("cudaEventQuery", 2);
  EXPECT_THAT(complaint(made.trace()), HasSubstr("expected ops, annotations or launches"));
  EXPECT_THAT(complaint(MadeTrace().trace()), HasSubstr("expected host events, found none"));
}

// ---- launch queue ------------------------------------------------------------------------------

Program filled_queue(std::size_t depth) {
  return [depth](MadeTrace& made) {
    made.queue_depth = depth;
    for (int i = 0; i < 4; ++i) {
      made.step([&] {
        for (int k = 0; k < 1000; ++k) {
          made.op("aten::mm", [&] { made.launch(5, 10 + (k * 37) % 81); });
        }
      });
    }
  };
}

TEST(Replay, AFullLaunchQueueHoldsTheHost) {
  for (std::size_t depth : {1022U, 300U}) {
    SCOPED_TRACE(depth);
    const Program program = filled_queue(depth);
    const Trace trace = run(program).trace();
    const Replay replay = replay_one(trace);
    EXPECT_THAT(replay.warnings, Contains(HasSubstr(fmt::format("depth {} found", depth))));
    EXPECT_LT(replay.mean_abs_error, 1e-6);
    for (double kernels : {0.05, 0.5, 1., 3.}) expect_follows(program, {kernels, 1});
    const auto full = replayed_steps(replay);
    const auto half = replayed_steps(replay_one(trace, {.scale_kernels = 0.5}));
    EXPECT_NEAR(half[3] / full[3], 0.5, 0.01);
    // Without the queue nothing holds the host: 1000 calls of 5.
    EXPECT_NEAR(without(program, {.launch_queue = false})[3], 5000, kExact);
  }
}

TEST(Replay, AQueueThatNeverFillsIsOnlyFeltByAWhatIf) {
  // 3000 launches, the device keeps up; ten times slower, it is 1,024 launches ahead at most.
  const auto program = [](MadeTrace& made) {
    made.queue_depth = 1024;
    for (int i = 0; i < 3; ++i) {
      made.step([&] {
        for (int k = 0; k < 1000; ++k) made.op("aten::mm", [&] { made.launch(10, 8); });
      });
    }
  };
  const Replay replay = replay_one(run(program).trace());
  EXPECT_TRUE(replay.warnings.empty());
  expect_follows(program, {1, 1});
  // No kernel had to queue, so the gap is the default, 1.3, not the 0.75 of the made-up device.
  const auto slow = replayed_steps(replay_one(run(program).trace(), {.scale_kernels = 10}));
  EXPECT_NEAR(slow[2], run(program, {10, 1}).step_walls[2], 1000 * 0.56);
  EXPECT_GT(slow[2], 80'000);
}

TEST(Replay, AGraphTakesOnePlaceInTheQueue) {
  // Five graphs of 600 kernels are five launches, far from filling any queue.
  const auto program = [](MadeTrace& made) {
    std::vector<MadeTrace::Node> chain(600, MadeTrace::Node{7, 1, {}});
    for (std::size_t i = 1; i < chain.size(); ++i) chain[i].after = {i - 1};
    for (int i = 0; i < 5; ++i) {
      made.step([&] {
        made.op("replay", [&] { made.launch_graph(20, chain); });
        made.spend(2000);
      });
    }
  };
  for (double kernels : {1., 40.}) expect_follows(program, {kernels, 1});
}

// ---- device work that was not recorded ---------------------------------------------------------

// A chain of nodes; those at odd places are not in the trace.
std::vector<MadeTrace::Node> half_recorded(std::size_t count) {
  std::vector<MadeTrace::Node> nodes;
  for (std::size_t i = 0; i < count; ++i) {
    nodes.push_back(
        {.stream = 7, .us = i % 2 == 0 ? 40. : 60., .after = {}, .recorded = i % 2 == 0});
    if (i > 0) nodes.back().after = {i - 1};
  }
  return nodes;
}

TEST(Replay, MissingNodesOfGraphsAreTasksOfTheirOwn) {
  // Ten nodes end with one that is missing, nine do not.
  for (std::size_t count : {9U, 10U}) {
    SCOPED_TRACE(count);
    const auto program = [count](MadeTrace& made) {
      made.calibrate();
      for (int i = 0; i < 4; ++i) {
        made.step([&] {
          made.op("replay", [&] { made.launch_graph(20, half_recorded(count)); });
          made.sync_stream(4);
        });
      }
    };
    const double missing = 60. * static_cast<double>(count / 2);
    const double recorded = 40. * static_cast<double>(count - count / 2);
    const double rest = 22.5 + static_cast<double>(count - 1) + 4;
    EXPECT_NEAR(run(program).step_walls[0], rest + missing + recorded, kExact);
    for (double kernels : {0., 0.5, 1., 2.}) expect_follows(program, {kernels, 1});
    for (double host : {0.5, 2.}) {  // waits after a missing node cannot be told from it
      expect_follows(program, {1, host}, false, count % 2 == 0 ? 5 : kExact);
    }
    const Trace trace = run(program).trace();
    const Replay replay = replay_one(trace);
    for (const auto& iteration : replay.ranks[0].iterations) {
      EXPECT_NEAR(iteration.unrecorded_device_us, missing, 2. * static_cast<double>(count));
    }
    EXPECT_NEAR(replay.unrecorded_device_us, missing, 2. * static_cast<double>(count));
    EXPECT_THAT(replay.warnings, Contains(HasSubstr("unrecorded device work: for")));
    double on_path = 0;
    for (const auto& share : replay.ranks[0].critical_path.shares) {
      if (share.category == "unrecorded device work") on_path = share.us;
    }
    EXPECT_NEAR(on_path, missing, 2. * static_cast<double>(count));
    // Unless asked, it keeps its time.
    EXPECT_NEAR(replayed_steps(replay_one(trace, {.scale_unrecorded = 0.5}))[1],
                rest + missing / 2 + recorded, static_cast<double>(count));
  }
}

TEST(Replay, AGraphOfWhichNothingWasRecorded) {
  const auto program = [](MadeTrace& made) {
    made.calibrate();
    for (int i = 0; i < 4; ++i) {
      made.step([&] {
        made.op("aten::mm", [&] { made.launch(5, 200); });
        made.op("replay", [&] {
          made.launch_graph(20, {{.stream = 7, .us = 3000, .after = {}, .recorded = false}});
        });
        made.sync_stream(4);
      });
    }
  };
  EXPECT_NEAR(run(program).step_walls[0], 7.5 + 200 + 0.75 + 3000 + 4, kExact);
  for (double kernels : {0.5, 1., 2.}) expect_follows(program, {kernels, 1});
  EXPECT_NEAR(replay_one(run(program).trace()).unrecorded_device_us, 3000, 10);
}

TEST(Replay, WorkLaunchedBeforeTheRecordingHoldsTheFirstStep) {
  // 50 ms of kernels were queued when the recording began, of which it saw nothing.
  const auto program = [](MadeTrace& made) {
    made.muted = true;
    made.step([&] {
      for (int k = 0; k < 10; ++k) made.op("aten::mm", [&] { made.launch(5, 5000); });
    });
    made.muted = false;
    for (int i = 0; i < 3; ++i) {
      made.step([&] {
        for (int k = 0; k < 10; ++k) made.op("aten::mm", [&] { made.launch(5, 1000); });
        made.sync_stream(4);
      });
    }
  };
  // The earlier kernels keep their own pace whatever is asked.
  const MadeTrace measured = run(program);
  const double before = 5 + 2.5 + 10 * 5000 + 9 * 0.75 - measured.step_walls[0];
  const double step = 10 * 1000 + 10 * 0.75 + 4;
  EXPECT_NEAR(measured.step_walls[1], before + step, kExact);
  const Trace trace = measured.trace();
  const Replay replay = replay_one(trace);
  EXPECT_THAT(replayed_steps(replay),
              ::testing::ElementsAreArray(std::vector<::testing::Matcher<double>>{
                  ::testing::DoubleNear(before + step, kExact),
                  ::testing::DoubleNear(measured.step_walls[2], kExact),
                  ::testing::DoubleNear(measured.step_walls[3], kExact)}));
  EXPECT_NEAR(replay.ranks[0].iterations[0].unrecorded_device_us, before, 10);
  EXPECT_EQ(replay.ranks[0].iterations[1].unrecorded_device_us, 0);
  const auto half = replayed_steps(replay_one(trace, {.scale_kernels = 0.5}));
  EXPECT_NEAR(half[0], before + step - 5000, kExact);
  EXPECT_NEAR(half[1], measured.step_walls[2] - 5000, kExact);
  // A slower host changes nothing while the device is busy with earlier work.
  EXPECT_NEAR(replayed_steps(replay_one(trace, {.scale_host = 2}))[0], before + step + 4, kExact);
}

TEST(Replay, StepsBeforeTheQueueIsFullAreLeftOutOfMedians) {
  // The device takes 50 ms for what the host calls in 5: the first steps only fill the queue.
  const Program program = [](MadeTrace& made) {
    made.queue_depth = 3000;
    for (int i = 0; i < 9; ++i) {
      made.step([&] {
        for (int k = 0; k < 1000; ++k) made.op("aten::mm", [&] { made.launch(5, 50); });
      });
    }
  };
  const MadeTrace made = run(program);
  const Replay replay = replay_one(made.trace());
  EXPECT_EQ(replay.median.left_out, 4U);  // three that find room, and the one that fills it
  EXPECT_EQ(replay.median.iterations, 5U);
  const double period = 1000 * 50.75;
  EXPECT_NEAR(replay.median.replayed_us, period, 1e-4 * period);
  EXPECT_NEAR(replay.median.measured_us, period, 1e-4 * period);
  EXPECT_NEAR(replay.median.measured_device_period_us, period, 1e-4 * period);
  EXPECT_NEAR(made.step_walls[0], 5000, kExact);
  const auto half = replay_one(made.trace(), {.scale_kernels = 0.5}).median;
  EXPECT_NEAR(half.unscaled_us, period, 1e-4 * period);
  EXPECT_NEAR(half.replayed_us, 1000 * 25.75, 1e-4 * period);
  EXPECT_NEAR(half.replayed_device_period_us, 1000 * 25.75, 1e-4 * period);
}

TEST(Replay, UploadsThatEndLongAfterTheirCallBlockToo) {
  // The call goes when the last piece is staged, here 300 us before the copy's end.
  const auto program = [](MadeTrace& made) {
    made.calibrate();
    for (int i = 0; i < 3; ++i) {
      made.step([&] {
        made.op("aten::copy_", [&] { made.upload(400, 6000, 300); });
        made.op("aten::mm", [&] {
          made.spend(10);
          made.launch(5, 2000);
        });
        made.sync_stream(4);
        made.spend(30);
      });
    }
  };
  EXPECT_NEAR(run(program).step_walls[0], 400 + 6000 + 0.75 + 2000 + 4 + 30, kExact);
  for (double kernels : {0., 0.5, 1., 2.}) expect_follows(program, {kernels, 1});
}

// ---- what-ifs ----------------------------------------------------------------------------------

TEST(Replay, WhatIfsAreComparedWithTheReplayAsRecorded) {
  const Trace trace = run(three_kernels).trace();
  // Without its synchronising calls the replay takes 114 instead of 1,273.
  const ReplayOptions wrong{.scale_host = 2, .rules = {.synchronise = false}};
  EXPECT_THAT(complaint(trace, wrong),
              HasSubstr("expected a replay within 10 % of what was measured to ask what-ifs of, "
                        "found 91.0 %"));
  ReplayOptions forced = wrong;
  forced.force = true;
  const Replay replay = replay_one(trace, forced);
  EXPECT_NEAR(replay.mean_abs_error, 1 - 114. / 1273, 1e-3);
  const auto& iteration = replay.ranks[0].iterations[1];
  EXPECT_NEAR(iteration.unscaled_us, 114, kExact);
  EXPECT_NEAR(iteration.replayed_us, 228, kExact);
  EXPECT_NEAR(iteration.change(), 1, 1e-3);
  EXPECT_NEAR(iteration.error(), 114. / 1273 - 1, 1e-3);
  // As recorded, whatever the error, there is nothing to refuse.
  EXPECT_THAT(without(three_kernels, {.synchronise = false}),
              Each(::testing::DoubleNear(114, kExact)));
}

TEST(Replay, WithoutDeviceWorkTheErrorMeansNothing) {
  MadeTrace made;
  made.step([&] { made.op("aten::mm", [&] { made.spend(100); }); });
  EXPECT_THAT(replay_one(made.trace()).warnings,
              ::testing::ElementsAre(HasSubstr("no device work in the trace")));
}

// ---- graphs, earlier work, data loading --------------------------------------------------------

TEST(Replay, BranchesOfAGraphRunSideBySide) {
  // 0 -> 1 and 2 -> 3; branch 2 runs on another stream, or on the same one.
  for (int branch : {8, 7}) {
    SCOPED_TRACE(branch);
    const auto program = [branch](MadeTrace& made) {
      made.calibrate();
      for (int i = 0; i < 3; ++i) {
        made.step([&] {
          made.op("replay", [&] {
            made.launch_graph(20,
                              {{7, 50, {}}, {7, 100, {0}}, {branch, 150, {0}}, {7, 30, {1, 2}}});
          });
          made.sync_device(4);
        });
      }
    };
    EXPECT_NEAR(run(program).step_walls[0], 22.5 + 50 + 1 + 150 + 1 + 30 + 4, kExact);
    for (double kernels : {0.5, 1., 2.}) expect_follows(program, {kernels, 1});
  }
}

TEST(Replay, KernelsLaunchedBeforeTheWindowAreTheInitialCondition) {
  const auto program = [](MadeTrace& made) {
    made.spend(10);
    made.step([&] {
      made.earlier_kernel(15, 300);
      made.earlier_kernel(20, 400);  // begins when the stream is free
      made.op("aten::mm", [&] { made.launch(5, 100); });
      made.sync_stream(4);
    });
    made.calibrate();
  };
  EXPECT_NEAR(run(program).step_walls[0], 15 + 300 + 0.75 + 400 + 0.75 + 100 + 4 - 10, kExact);
  for (double kernels : {0.5, 1., 2.}) expect_follows(program, {kernels, 1});
  EXPECT_THAT(replay_one(run(program).trace()).warnings,
              Contains(HasSubstr("2 device tasks were launched outside of the trace")));
}

TEST(Replay, DataLoadingStaysAsMeasured) {
  const auto program = [](MadeTrace& made) {
    made.calibrate();
    for (int i = 0; i < 2; ++i) {
      made.step([&] {
        made.load_data(5000);
        made.op("aten::mm", [&] {
          made.spend(20);
          made.launch(5, 300);
        });
        made.sync_stream(4);
      });
    }
  };
  expect_follows_at_every_pace(program);
  const Replay slower = replay_one(run(program).trace(), {.scale_host = 3});
  EXPECT_NEAR(slower.ranks[0].iterations[1].data_loading_us, 5000, kExact);
  EXPECT_NEAR(slower.ranks[0].iterations[1].replayed_us, 5000 + 75 + 2.5 + 300 + 12, kExact);
}

// ---- which iterations --------------------------------------------------------------------------

TEST(Replay, OptimizerStepsDelimitIterationsWhereNothingElseDoes) {
  MadeTrace made;
  for (int i = 0; i < 4; ++i) {
    made.op("aten::mm", [&] { made.launch(5, 100); });
    made.sync_stream(4);
    made.annotation("Optimizer.step#SGD.step",
                    [&] { made.op("aten::add_", [&] { made.spend(50); }); });
  }
  const Trace trace = made.trace();
  const Replay replay = replay_one(trace);
  ASSERT_EQ(replay.ranks[0].iterations.size(), 3U);
  EXPECT_EQ(replay.ranks[0].iterations[0].name, "after Optimizer.step#SGD.step");
  EXPECT_THAT(replayed_steps(replay), Each(::testing::DoubleNear(7.5 + 100 + 4 + 50, kExact)));
  EXPECT_LT(replay.mean_abs_error, 1e-6);
  EXPECT_THAT(replayed_steps(replay_one(trace, {.scale_kernels = 3})),
              Each(::testing::DoubleNear(7.5 + 300 + 4 + 50, kExact)));
}

TEST(Replay, WithoutIterationsTheWholeTraceIsOne) {
  MadeTrace made;
  made.op("aten::mm", [&] { made.launch(5, 100); });
  made.sync_stream(4);
  made.op("aten::add_", [&] { made.spend(50); });
  const Replay replay = replay_one(made.trace(), {.scale_kernels = 2});
  ASSERT_EQ(replay.ranks[0].iterations.size(), 1U);
  EXPECT_EQ(replay.ranks[0].iterations[0].name, "whole trace");
  EXPECT_NEAR(replay.ranks[0].iterations[0].measured_us, 7.5 + 100 + 4 + 50, kExact);
  EXPECT_NEAR(replay.ranks[0].iterations[0].replayed_us, 7.5 + 200 + 4 + 50, kExact);
  EXPECT_THAT(complaint(made.trace(), {.iterations = std::pair<std::size_t, std::size_t>(0, 2)}),
              HasSubstr("expected iterations within 0:1"));
}

// ---- odd input ---------------------------------------------------------------------------------

TEST(Replay, InferredWaitsThatCloseACycleAreDropped) {
  // Two kernels of one graph launch, without length and at one stamp, both late: each seems to have
  // waited for the other.
  MadeTrace made;
  made.step([&] {
    made.op("replay", [&] { made.call("cudaGraphLaunch", 10); });
    for (int stream : {7, 8}) {
      made.raw(fmt::format(R"({{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": {0}, )"
                           R"("ts": {1}, "dur": 0, "args": {{"device": 0, "stream": {0}, )"
                           R"("correlation": 1}}}})",
                           stream, made.base_us + 60));
    }
    made.spend(100);
  });
  const Replay replay = replay_one(made.trace());
  EXPECT_THAT(replay.warnings, Contains(HasSubstr("2 inferred waits closed a cycle")));
  EXPECT_EQ(replay.inferred_edges, 2U);
  EXPECT_NEAR(replay.ranks[0].iterations[0].replayed_us, 110, kExact);
}

TEST(Replay, EpochStampsLoseNoPrecision) {
  const auto program = [](MadeTrace& made) {
    three_kernels(made);
    made.step([&] {
      made.op("aten::mm", [&] {
        made.spend(10.123);
        made.launch(5.001, 400.457);
      });
      made.sync_stream(4.003);
    });
  };
  MadeTrace small, large;
  large.base_us = 1.7e15;
  program(small);
  program(large);
  const Trace trace = large.trace();
  EXPECT_EQ(trace.base_ns, 1'700'000'000'000'000'000);
  const Replay near = replay_one(small.trace()), far = replay_one(trace);
  EXPECT_EQ(replayed_steps(near), replayed_steps(far));
  EXPECT_NEAR(far.ranks[0].iterations[3].replayed_us, 10.123 + 5.001 + 2.5 + 400.457 + 4.003,
              0.0015);
}

TEST(Replay, NegativeDurationsAreRefused) {  // in traces made in memory: the reader refuses them
  MadeTrace made;
  three_kernels(made);
  Trace host = made.trace(), device = made.trace();
  host.host.at(0).duration_ns = device.gpu.at(0).duration_ns = -5000;
  EXPECT_THAT(complaint(host), HasSubstr("expected durations of at least 0 us, found -5 for"));
  EXPECT_THAT(complaint(device), HasSubstr("expected durations of at least 0 us, found -5 for"));
}

// ---- several ranks -----------------------------------------------------------------------------

struct JobOptions {
  MadeTrace::Pace pace = {};
  bool numbered = true;
  double clock_ahead_us = 0;                                   // on rank 1
  std::size_t late_recording = 0;                              // steps that rank 1 did not record
  std::optional<std::size_t> missing, other_size, other_kind;  // step, on rank 1
};

// Per rank and step, host work before the all-reduce. Its transfer takes 200.
std::vector<MadeTrace> run_job(const std::vector<std::vector<double>>& work,
                               const JobOptions& options = {}) {
  std::vector<MadeTrace> ranks;
  for (std::size_t r = 0; r < work.size(); ++r) {
    ranks.emplace_back(options.pace);
    ranks[r].head =
        fmt::format(R"("distributedInfo": {{"rank": {}, "world_size": {}}}, )", r, work.size());
    if (r == 1) ranks[r].base_us += options.clock_ahead_us;
  }
  for (std::size_t s = 0; s < work[0].size(); ++s) {
    double last = 0;
    for (std::size_t r = 0; r < work.size(); ++r) {
      MadeTrace& rank = ranks[r];
      rank.muted = r == 1 && s < options.late_recording;
      rank.begin_step();
      rank.op("aten::mm", [&] {
        rank.spend(work[r][s]);
        rank.launch(5, 50);
        last = std::max(last, rank.arrive(5));
      });
    }
    for (std::size_t r = 0; r < work.size(); ++r) {
      MadeTrace& rank = ranks[r];
      std::string args, kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL";
      if (options.numbered) {
        args = fmt::format(R"(, "Collective name": "{}", "Process Group Name": "0", "Seq": {}, )"
                           R"("In msg nelems": {}, "Out msg nelems": 8, "Group size": {})",
                           r == 1 && options.other_kind == s ? "allgather" : "allreduce", 7 + s,
                           r == 1 && options.other_size == s ? 9 : 8, work.size());
      }
      const bool muted = rank.muted;
      rank.muted = muted || (r == 1 && options.missing == s);
      rank.finish(last + 200, args, kernel);
      rank.muted = muted;
      rank.sync_stream(4, 13);
      rank.end_step();
    }
  }
  return ranks;
}

std::vector<Trace> traces_of(const std::vector<MadeTrace>& ranks) {
  std::vector<Trace> traces;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    traces.push_back(ranks[r].trace(fmt::format("rank{}.json", r)));
  }
  return traces;
}

Replay replay_all(const std::vector<Trace>& traces, const ReplayOptions& options = {}) {
  auto made = replay(traces, options);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  if (!made) return Replay{.ranks = std::vector<Replay::Rank>(traces.size())};
  return std::move(*made);
}

std::string complaint(const std::vector<Trace>& traces, const ReplayOptions& options = {}) {
  const auto made = replay(traces, options);
  return made ? "no error" : made.error().message;
}

const std::vector<std::vector<double>> kLate = {{1000, 1000}, {1500, 1500}};

TEST(ReplayRanks, TheOthersWaitForTheLateRank) {
  for (bool numbered : {true, false}) {
    SCOPED_TRACE(numbered);
    const Replay replay = replay_all(traces_of(run_job(kLate, {.numbered = numbered})));
    EXPECT_EQ(replay.collectives_matched, 2U);
    EXPECT_EQ(replay.collectives_unmatched, 0U);
    EXPECT_THAT(replay.warnings, Each(Not(HasSubstr("ranks are given"))));
    // Rank 1 arrives at 1500 + 5 + 5 + 2.5; 200 of transfer, 4 of the synchronising call.
    for (std::size_t r : {0U, 1U}) {
      EXPECT_THAT(replayed_steps(replay, r), Each(::testing::DoubleNear(1716.5, kExact)));
    }
    const RankReport &early = replay.ranks[0].communication, &late = replay.ranks[1].communication;
    EXPECT_NEAR(early.waiting_us, 500, kExact);
    EXPECT_NEAR(late.waiting_us, 0, kExact);
    EXPECT_NEAR(early.transfer_us, 200, kExact);
    EXPECT_NEAR(late.transfer_us, 200, kExact);
    // The kernel of 50 overlaps the first 45 of the collective.
    EXPECT_NEAR(early.exposed_us, 655, kExact);
    EXPECT_NEAR(late.exposed_us, 155, kExact);
    EXPECT_EQ(early.last_arrivals, 0U);
    EXPECT_EQ(late.last_arrivals, 2U);
    EXPECT_EQ(late.collectives, 2U);
    EXPECT_NEAR(late.caused_us, 500, kExact);
    ASSERT_TRUE(replay.job);
    EXPECT_NEAR(replay.job->step_us, 1716.5, kExact);
    EXPECT_EQ(replay.job->straggler, 1);
    // Rank 0 would take 1216.5, rank 1 what it takes: half of 500 on average.
    EXPECT_NEAR(replay.job->straggler_saving_us, 250, kExact);
    EXPECT_NEAR(replay.job->imbalance, 1716.5 / ((1216.5 + 1716.5) / 2) - 1, 1e-5);
  }
}

TEST(ReplayRanks, WaitingFollowsWhoIsLate) {
  // The late rank changes, and with the host at another pace so does the waiting.
  const std::vector<std::vector<double>> work = {
      {1000, 2000, 700}, {1500, 900, 710}, {300, 300, 5000}};
  const auto traces = traces_of(run_job(work));
  for (double host : {0.5, 1., 3.}) {
    const auto expected = run_job(work, {.pace = {1, host}});
    const Replay replay = replay_all(traces, {.scale_host = host});
    for (std::size_t r = 0; r < work.size(); ++r) {
      for (std::size_t s = 0; s < work[r].size(); ++s) {
        EXPECT_NEAR(replayed_steps(replay, r)[s], expected[r].step_walls[s], kExact)
            << "rank " << r << ", step " << s << ", host x " << host;
      }
    }
  }
}

TEST(ReplayRanks, ClocksMayDisagreeAndARecordingMayBeginLate) {
  const std::vector<std::vector<double>> work = {{1000, 2000, 700, 400}, {1500, 900, 710, 1234}};
  for (bool numbered : {true, false}) {
    SCOPED_TRACE(numbered);
    const auto made =
        run_job(work, {.numbered = numbered, .clock_ahead_us = 5e6, .late_recording = 1});
    const Replay replay = replay_all(traces_of(made));
    EXPECT_NEAR(replay.ranks[0].clock_offset_us, 0, 0);
    EXPECT_NEAR(replay.ranks[1].clock_offset_us, 5e6, 0.002);
    EXPECT_THAT(replay.warnings, Contains(HasSubstr("is 5000000 us ahead")));
    EXPECT_EQ(replay.collectives_matched, 3U);
    EXPECT_EQ(replay.collectives_unmatched, 1U);
    ASSERT_EQ(replay.ranks[1].iterations.size(), 3U);
    for (std::size_t s = 0; s < 4; ++s) {
      EXPECT_NEAR(replayed_steps(replay, 0)[s], made[0].step_walls[s], kExact) << s;
      if (s > 0) {
        EXPECT_NEAR(replayed_steps(replay, 1)[s - 1], made[1].step_walls[s], kExact) << s;
      }
    }
  }
}

TEST(ReplayRanks, ARankGivenTwiceIsRefused) {
  auto traces = traces_of(run_job(kLate));
  traces[1].rank = 0;
  EXPECT_THAT(complaint(traces), HasSubstr("expected every rank once, found rank 0"));
}

TEST(ReplayRanks, RanksOfDifferentJobsAreRefused) {
  auto traces = traces_of(run_job(kLate));
  traces[1].world_size = 4;
  EXPECT_THAT(complaint(traces), HasSubstr("found a world of 4 ranks and one of 2"));
  traces[0].world_size = 4;
  EXPECT_THAT(replay_all(traces).warnings, Contains(HasSubstr("2 of 4 ranks are given")));
}

TEST(ReplayRanks, RanksWithoutACommonCollectiveAreRefused) {
  auto traces = traces_of(run_job(kLate, {.numbered = false}));
  for (GpuEvent& event : traces[1].gpu) {
    if (event.stream == 13) event.name = traces[1].names.intern("ncclDevKernel_AllGather");
  }
  EXPECT_THAT(complaint(traces), HasSubstr("no collective in common"));
}

TEST(ReplayRanks, ACollectiveOfTwoSizesIsRefused) {
  EXPECT_THAT(complaint(traces_of(run_job(kLate, {.other_size = 1}))),
              HasSubstr("expected one size for all_reduce 8 of process group \"0\", found 8 "
                        "elements in rank0.json and 9 in rank1.json"));
  EXPECT_THAT(complaint(traces_of(run_job(kLate, {.other_kind = 1}))),
              HasSubstr("expected one kind for collective 8"));
}

TEST(ReplayRanks, ACollectiveMissingInTheMiddleIsAnErrorUnlessAskedFor) {
  const std::vector<std::vector<double>> work = {{1000, 2000, 700}, {1500, 900, 710}};
  for (bool numbered : {true, false}) {
    SCOPED_TRACE(numbered);
    const auto made = run_job(work, {.numbered = numbered, .missing = 1});
    const auto traces = traces_of(made);
    EXPECT_THAT(complaint(traces), HasSubstr("rank1.json lacks all_reduce"));
    const Replay replay = replay_all(traces, {.missing_ranks = true});
    EXPECT_EQ(replay.collectives_matched, 2U);
    EXPECT_EQ(replay.collectives_unmatched, 1U);
    EXPECT_THAT(replay.warnings, Contains(HasSubstr("rank1.json lacks all_reduce")));
    for (std::size_t r : {0U, 1U}) {
      for (std::size_t s = 0; s < 3; ++s) {
        EXPECT_NEAR(replayed_steps(replay, r)[s], made[r].step_walls[s], kExact);
      }
    }
  }
}

}  // namespace replay_test
}  // namespace perfmodel
