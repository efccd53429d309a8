#include "perfmodel/predict.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "literal_case.hpp"

namespace perfmodel {
namespace predict_test {

using test_support::blocking_copy_call;
using test_support::Case;
using test_support::collective_call;
using test_support::exactly;
using test_support::kernel_call;
using test_support::literal_table;
using test_support::sync_call;
using test_support::teach;
using test_support::TinyRun;

constexpr double kNear = 1e-6;

// Conditions for every prediction.
void expect_consistent(const Prediction& p) {
  EXPECT_NEAR(p.e2e_us, p.cpu_us + p.wait_us, kNear);
  EXPECT_NEAR(p.kernel_sum_us, p.compute_kernel_us + p.comm_kernel_us, kNear);
  double host = 0, wait = 0, terms = 0;
  for (const auto& phase : p.phases) {
    host += phase.host_us;
    wait += phase.wait_us;
  }
  for (std::size_t term = 0; term <= static_cast<std::size_t>(Term::kTx); ++term) {
    terms += p.terms_us[term];
  }
  EXPECT_NEAR(host, p.cpu_us, kNear);
  EXPECT_NEAR(wait, p.wait_us, kNear);
  EXPECT_NEAR(terms, p.cpu_us, kNear);
}

double term(const Prediction& p, Term which) { return p.terms_us[static_cast<std::size_t>(which)]; }

// ---- host and device ---------------------------------------------------------------------------

TEST(Predict, AHostBoundStepTakesTheHostsTime) {
  // Two ops of 10 us; their kernels of 5 us overlap with them.
  const Case c({"a", "b"}, 5);  // the names of the prediction's ops live in its graph
  const Prediction p = c.predict();
  EXPECT_NEAR(p.e2e_us, 20, kNear);
  EXPECT_NEAR(p.cpu_us, 20, kNear);
  EXPECT_NEAR(p.wait_us, 0, kNear);
  EXPECT_NEAR(p.gpu_active_us, 10, kNear);
  EXPECT_NEAR(p.gpu_idle_us, 10, kNear);
  EXPECT_NEAR(p.kernel_sum_us, 10, kNear);
  EXPECT_NEAR(term(p, Term::kT1), 6, kNear);
  EXPECT_NEAR(term(p, Term::kT2), 4, kNear);
  EXPECT_NEAR(term(p, Term::kT3), 2, kNear);
  EXPECT_NEAR(term(p, Term::kT4), 8, kNear);
  EXPECT_NEAR(term(p, Term::kKernel), 10, kNear);
  ASSERT_EQ(p.ops.size(), 2u);
  EXPECT_EQ(p.ops[0].name, "a");
  EXPECT_NEAR(p.ops[0].start_us, 3, kNear);
  EXPECT_NEAR(p.ops[0].host_us, 10, kNear);
  EXPECT_NEAR(p.ops[1].start_us, 13, kNear);
  ASSERT_EQ(p.ops[0].kernels.size(), 1u);
  // Call ends at 3 + 2 + 4, the kernel starts 1.5 later; the second op follows 10 us later.
  EXPECT_NEAR(p.ops[0].kernels[0].start_us, 10.5, kNear);
  EXPECT_NEAR(p.ops[1].kernels[0].start_us, 20.5, kNear);
  EXPECT_EQ(p.ops[0].kernels[0].price.bound, Bound::kMeasured);
  expect_consistent(p);
}

TEST(Predict, AStreamSynchroniseWaitsForTheDevice) {
  // Kernel a: 10.5 to 60.5. Kernel b was launched at 19, but the stream is busy: 61.5 to 111.5. The
  // synchronise ends 2 us later, its op 1 us after that.
  const Prediction p = Case({"a", "b", "item"}, 50).predict();
  EXPECT_NEAR(p.e2e_us, 114.5, kNear);
  EXPECT_NEAR(p.cpu_us, 28, kNear);  // 10 + 10 + 3 + 2 + 2 + 1
  EXPECT_NEAR(p.wait_us, 86.5, kNear);
  EXPECT_NEAR(p.gpu_active_us, 100, kNear);
  EXPECT_NEAR(p.gpu_idle_us, 14.5, kNear);
  ASSERT_EQ(p.ops.size(), 3u);
  EXPECT_NEAR(p.ops[2].wait_us, 86.5, kNear);
  EXPECT_NEAR(p.ops[1].kernels[0].start_us, 61.5, kNear);
  expect_consistent(p);
}

TEST(Predict, WakingUpCostsMoreThanFindingTheStreamIdle) {
  // As above, but 5 us after an awaited end; 2 us where nothing is left to wait for.
  Case waking({"a", "b", "item"}, 50);
  waking.table.t4["cudaStreamSynchronize wake"] = exactly(5);
  waking.table.t4["cudaStreamSynchronize idle"] = exactly(2);
  EXPECT_NEAR(waking.predict().e2e_us, 117.5, kNear);
  expect_consistent(waking.predict());
  // Kernel of 1 us: done at 11.5, the synchronise starts at 10 + 3 + 2 = 15.
  Case idle({"a", "item"}, 1);
  idle.table.t4["cudaStreamSynchronize wake"] = exactly(5);
  idle.table.t4["cudaStreamSynchronize idle"] = exactly(2);
  EXPECT_NEAR(idle.predict().e2e_us, 18, kNear);
  EXPECT_NEAR(idle.predict().wait_us, 0, kNear);
}

TEST(Predict, ABlockingCopyHoldsTheHost) {
  // On an idle stream: call at 3 + 2, copy 10 us later, 15 to 35, own time 5, T3 1.
  const Prediction alone = Case({"copy_"}, 20).predict();
  EXPECT_NEAR(alone.e2e_us, 41, kNear);
  EXPECT_NEAR(alone.cpu_us, 11, kNear);  // 3 + 2 + 5 + 1
  EXPECT_NEAR(alone.wait_us, 30, kNear);
  EXPECT_NEAR(term(alone, Term::kCopy), 20, kNear);
  expect_consistent(alone);
  // After a kernel: 10.5 to 30.5; the copy is called at 15, could start at 25, starts at 31.5 and
  // ends at 51.5. Then 5 and 1.
  const Prediction queued = Case({"a", "copy_"}, 20).predict();
  EXPECT_NEAR(queued.e2e_us, 57.5, kNear);
  expect_consistent(queued);
}

TEST(Predict, AStreamSynchroniseDoesNotWaitForOtherStreams) {
  // "side" runs on stream 1: 10.5 to 40.5. The device synchronise waits for it, the other does not.
  EXPECT_NEAR(Case({"side", "drain"}, 30).predict().e2e_us, 40.5 + 2 + 1, kNear);
  const Prediction p = Case({"side", "item", "drain"}, 30).predict();
  ASSERT_EQ(p.ops.size(), 3u);
  EXPECT_NEAR(p.ops[1].wait_us, 0, kNear);
  EXPECT_GT(p.ops[2].wait_us, 10);
  EXPECT_NEAR(p.e2e_us, 43.5, kNear);
  expect_consistent(p);
}

TEST(Predict, CallsOfOneOpAreT5Apart) {
  // 3 + 2 + 4 + 6 + 4 + 1, the T5 of the first interval from its context.
  Case two({"a"}, 1);
  teach(two.table, "a", {kernel_call(), kernel_call()});
  EXPECT_NEAR(two.predict().e2e_us, 20, kNear);
  const std::uint64_t subtree = subtree_key(two.graph, 1);
  two.table.t5.by_context[hash_mix(subtree, 1)] = exactly(9);
  EXPECT_NEAR(two.predict().e2e_us, 23, kNear);
  EXPECT_NEAR(term(two.predict(), Term::kT5), 9, kNear);
}

TEST(Predict, OpsWithoutCallsTakeTheirWholeTime) {
  const Prediction p = Case({"view", "a"}, 1).predict();
  EXPECT_NEAR(p.e2e_us, 20, kNear);  // 3 + 7, then 10
  EXPECT_NEAR(term(p, Term::kTx), 7, kNear);
  expect_consistent(p);
}

TEST(Predict, FiguresComeFromTheMostSpecificKey) {
  Case c({"a", "b"}, 1);
  c.table.t2.by_name[hash_text("a")] = {"a", exactly(5)};
  const std::uint64_t b = subtree_key(c.graph, 2);
  c.table.t2.by_context[b] = exactly(8);
  c.table.t1.by_name[gap_class_key(GapClass::kSibling)] = {"same parent", exactly(4)};
  const Prediction p = c.predict();
  // a: 3 (border, overall mean) + 5 + 4 + 1; b: 4 (class) + 8 + 4 + 1.
  EXPECT_NEAR(p.e2e_us, 30, kNear);
  EXPECT_EQ(p.ops[0].op_level, KeyLevel::kName);
  EXPECT_EQ(p.ops[0].gap_level, KeyLevel::kAll);
  EXPECT_EQ(p.ops[1].op_level, KeyLevel::kContext);
  EXPECT_EQ(p.ops[1].gap_level, KeyLevel::kName);
}

// ---- steady state ------------------------------------------------------------------------------

TEST(Predict, TheSteadyStateIsReachedFromAnEmptyDevice) {
  // The synchronise comes first and waits for the previous pass, which the very first pass does not
  // have. From the end of kernel b: synchronise 2, T3 1, then a's 3 + 2 + 4 + 1.5, its kernel 50,
  // the gap 1 and b's kernel 50.
  const Prediction p = Case({"item", "a", "b"}, 50).predict();
  EXPECT_NEAR(p.e2e_us, 2 + 1 + 3 + 2 + 4 + 1.5 + 50 + 1 + 50, 0.2);
  expect_consistent(p);
}

TEST(Predict, AHostThatRunsAheadIsHeldByTheDeviceInTheLongRun) {
  // The host needs 20 us, the device 2 x (50 + 1): the launch queue is finite, so that in steady
  // state the host goes at the device's pace.
  const Prediction p = Case({"a", "b"}, 50).predict();
  EXPECT_NEAR(p.e2e_us, 102, 0.2);
  EXPECT_GE(p.e2e_us, p.gpu_active_us);
}

TEST(Predict, StepsOfOneGraphAreAveraged) {
  TinyRun run;
  run.label("ProfilerStep#1", [&] { run.op("a", [] {}); });
  run.label("ProfilerStep#2", [&] {
    run.op("a", [] {});
    run.op("b", [] {});
  });
  const Case c(run, 1);
  const Prediction p = c.predict();
  EXPECT_NEAR(p.e2e_us, 15, kNear);
  ASSERT_EQ(p.iterations.size(), 2u);
  EXPECT_EQ(p.iterations[0].name, "ProfilerStep#1");
  EXPECT_NEAR(p.iterations[0].e2e_us, 10, kNear);
  EXPECT_NEAR(p.iterations[1].e2e_us, 20, kNear);
  EXPECT_NEAR(p.cpu_us, 15, kNear);
  EXPECT_NEAR(p.kernel_sum_us, 1.5, kNear);
  expect_consistent(p);
  EXPECT_NEAR(c.predict({.iterations = std::pair{1, 2}}).e2e_us, 20, kNear);
  for (auto window : {std::pair{0, 3}, std::pair{1, 1}, std::pair{2, 3}}) {
    const auto bad = predict(c.graph, test_support::round_gpu(), c.table, {.iterations = window});
    ASSERT_FALSE(bad);
    EXPECT_EQ(bad.error().code, ErrorCode::kImpossible);
  }
}

TEST(Predict, AGraphWithoutOpsIsAnError) {
  TinyRun run;
  run.label("## nothing ##", [] {});
  EXPECT_FALSE(predict(run.graph(), test_support::round_gpu(), literal_table()));
}

// ---- collectives -------------------------------------------------------------------------------

// allreduce | wait | b | item, with communication records of the given numbers.
Case collective_case(std::int64_t called, std::int64_t awaited) {
  Case c({"allreduce", "wait", "b", "item"}, 5);
  c.graph.comm_records = {{.collective = "allreduce", .sequence = called},
                          {.collective = "wait", .sequence = awaited}};
  c.graph.nodes[1].comm = 0;
  c.graph.nodes[2].comm = 1;
  c.times = {};
  c.times.add(1, 0, 100, true);
  c.times.add(3, 0, 5, false);
  return c;
}

TEST(Predict, AWaitRecordHoldsTheNextKernelUntilItsCollectiveHasEnded) {
  // The collective runs from 3 + 2 + 4 + 1.5 = 10.5 to 110.5. b is launched at 10 + 10 + 9 = 29 and
  // could start at 30.5; it starts 2.5 after the collective, 113 to 118. Synchronise 2, T3 1.
  const Prediction p = collective_case(7, 7).predict();
  ASSERT_EQ(p.ops.size(), 4u);
  EXPECT_NEAR(p.ops[0].kernels[0].start_us, 10.5, kNear);
  EXPECT_NEAR(p.ops[2].kernels[0].start_us, 113, kNear);
  EXPECT_NEAR(p.e2e_us, 121, kNear);
  EXPECT_NEAR(p.comm_kernel_us, 100, kNear);
  EXPECT_NEAR(p.compute_kernel_us, 5, kNear);
  EXPECT_NEAR(p.gpu_active_us, 105, kNear);
  EXPECT_NEAR(term(p, Term::kCollective), 100, kNear);
  expect_consistent(p);
}

TEST(Predict, AWaitForAnotherNumberHoldsNothing) {
  const Prediction p = collective_case(7, 8).predict();
  ASSERT_EQ(p.ops.size(), 4u);
  EXPECT_NEAR(p.ops[2].kernels[0].start_us, 30.5, kNear);
}

TEST(Predict, ACollectiveWaitsForTheKernelsBeforeIt) {
  // Kernel a 10.5 to 60.5; the collective is launched at 19 but reads what a writes: 60.5 + 2.5.
  Case c({"a", "allreduce", "item", "drain"}, 50);
  c.times = {};
  c.times.add(1, 0, 50, false);
  c.times.add(2, 0, 10, true);
  const Prediction p = c.predict();
  EXPECT_NEAR(p.ops[1].kernels[0].start_us, 63, kNear);
}

TEST(Predict, KernelTimesOfCollectivesOnlyLeaveTheOthersToTheModel) {
  const Case c = collective_case(7, 7);
  const Prediction p = c.predict({.use = KernelTimes::Use::kComm});
  EXPECT_NEAR(p.comm_kernel_us, 100, kNear);
  EXPECT_EQ(p.ops[0].kernels[0].price.model, "as-traced");
  EXPECT_NE(p.ops[2].kernels[0].price.model, "as-traced");
}

// ---- threads and phases ------------------------------------------------------------------------

TEST(Predict, TheAutogradThreadWorksWhileTheMainThreadWaits) {
  // One serial host: 3 (border) + 7, hand-over 11 + 7, back 11 + 7.
  TinyRun run;
  run.op("main", [] {});
  run.on_thread(1, [&] { run.op("backward", [] {}); });
  run.op("main", [] {});
  Case c(run, 1);
  c.table.t1.by_name[gap_class_key(GapClass::kThread)] = {"thread changed", exactly(11)};
  const Prediction p = c.predict();
  EXPECT_NEAR(p.e2e_us, 46, kNear);
  ASSERT_EQ(p.ops.size(), 3u);
  EXPECT_EQ(p.ops[1].thread, 2);
  EXPECT_NEAR(p.ops[1].start_us, 21, kNear);
  EXPECT_NEAR(p.ops[2].start_us, 39, kNear);
  expect_consistent(p);
}

TEST(Predict, ASynchroniseOnOneThreadHoldsTheOther) {
  // a on the autograd thread, the synchronise on the main thread, then b on the autograd thread. In
  // steady state the kernel of b (115 to 165, see below) reaches 50.5 us into the next step, so
  // that a's kernel runs from 51.5 to 101.5; synchronise 2, T3 1, T1 3: b starts at 107.5. Its
  // launch ends 6 us later, its kernel starts 1.5 after that, at 115, and the step ends at 114.5.
  TinyRun run;
  run.on_thread(1, [&] { run.op("a", [] {}); });
  run.op("item", [] {});
  run.on_thread(1, [&] { run.op("b", [] {}); });
  const Prediction p = Case(run, 50).predict();
  ASSERT_EQ(p.ops.size(), 3u);
  EXPECT_NEAR(p.ops[0].kernels[0].start_us, 51.5, kNear);
  EXPECT_NEAR(p.ops[2].start_us, 107.5, kNear);
  EXPECT_NEAR(p.ops[2].kernels[0].start_us, 115, kNear);
  EXPECT_NEAR(p.e2e_us, 114.5, kNear);
  expect_consistent(p);
}

TEST(Predict, PhasesShareTheGapBetweenThem) {
  // Gap of 8 between the phases: a quarter before the first label closes, half inside the second.
  TinyRun run;
  run.label("## forward ##", [&] { run.op("view", [] {}); });
  run.label("## optimizer ##", [&] { run.op("view", [] {}); });
  Case c(run, 1);
  c.table.t1.by_name[gap_class_key(GapClass::kLabel)] = {"label crossed", exactly(8)};
  c.table.t1.by_name[gap_class_key(GapClass::kIteration)] = {"iteration border", exactly(0)};
  c.table.gap_splits[gap_class_key(GapClass::kLabel)] = {.tail = 0.25, .head = 0.5};
  const Prediction p = c.predict();
  EXPECT_NEAR(p.e2e_us, 22, kNear);  // 7 + 8 + 7
  std::map<std::string, double> host;
  for (const auto& phase : p.phases) host[phase.label] = phase.host_us;
  EXPECT_NEAR(host["## forward ##"], 7 + 2, kNear);
  EXPECT_NEAR(host["## optimizer ##"], 7 + 4, kNear);
  EXPECT_NEAR(host["rest"], 2, kNear);
  expect_consistent(p);
}

TEST(Predict, AutogradWorkBelongsToTheBackwardPhase) {
  TinyRun run;
  run.label("## backward ##", [&] { run.op("ones_like", [] {}); });
  run.on_thread(1, [&] { run.op("MulBackward0", [] {}); });
  const Prediction p = Case(run, 1).predict();
  ASSERT_EQ(p.ops.size(), 2u);
  EXPECT_EQ(p.phases[static_cast<std::size_t>(p.ops[1].phase)].label, "## backward ##");
  expect_consistent(p);
}

// ---- coverage ----------------------------------------------------------------------------------

TEST(Predict, OpsWithoutAModelAreListedWithTheirShare) {
  // my::op touches the GPU and is unknown: it costs its host time, 3 + 7. Host 10 + 10, device 5:
  // 10 of 25 us are in an op with unknown parts.
  Case c({"a", "my::op"}, 5);
  c.graph.tensors.push_back({.id = 5,
                             .storage_id = 5,
                             .numel = 8,
                             .item_size = 4,
                             .device = {.kind = Device::Kind::kGpu}});
  c.graph.arguments.push_back({.kind = Argument::Kind::kTensor, .index = 0});
  c.graph.nodes[2].inputs_begin = 0;
  c.graph.nodes[2].inputs_count = 1;
  const Prediction p = c.predict();
  EXPECT_NEAR(p.e2e_us, 20, kNear);
  ASSERT_EQ(p.coverage.unmodelled_ops.size(), 1u);
  EXPECT_EQ(p.coverage.unmodelled_ops[0].op, "my::op");
  EXPECT_EQ(p.coverage.unmodelled_ops[0].count, 1u);
  EXPECT_NEAR(p.coverage.unmodelled_ops[0].host_us, 10, kNear);
  EXPECT_NEAR(p.coverage.modelled_time_fraction, 1 - 10.0 / 25, kNear);
  EXPECT_FALSE(p.warnings.empty());
}

TEST(Predict, EverythingKnownIsFullCoverage) {
  const Prediction p = Case({"a", "b"}, 5).predict();
  EXPECT_EQ(p.coverage.modelled_time_fraction, 1);
  EXPECT_TRUE(p.coverage.unmodelled_ops.empty());
  EXPECT_EQ(p.coverage.nodes_by_template_level[static_cast<std::size_t>(TemplateLevel::kName)], 2u);
}

TEST(Predict, WithoutOpsTheFiguresAreTheSame) {
  const Case c({"a", "b", "item"}, 50);
  const Prediction with = c.predict(), without = c.predict({.keep_ops = false});
  EXPECT_EQ(without.e2e_us, with.e2e_us);
  EXPECT_EQ(without.wait_us, with.wait_us);
  EXPECT_TRUE(without.ops.empty());
  EXPECT_TRUE(without.critical_path.steps.empty());
}

TEST(Predict, TheCriticalPathNamesWhatBinds) {
  // Kernels a and b bind for 50 us each; host work before the first kernel and after the last.
  const Prediction p = Case({"a", "b", "item"}, 50).predict();
  const auto& steps = p.critical_path.steps;
  ASSERT_GE(steps.size(), 2u);
  EXPECT_NEAR(steps[0].us, 50, 2);
  EXPECT_NEAR(steps[1].us, 50, 2);
  EXPECT_EQ(steps[0].category, steps[1].category);  // the kernels' family
  ASSERT_FALSE(p.critical_path.shares.empty());
  EXPECT_EQ(p.critical_path.shares[0].category, steps[0].category);
}

// The gaps and latencies between its tasks are part of the path, or it explains too little.
TEST(Predict, TheCriticalPathAddsUpToTheStep) {
  for (const auto& ops : std::vector<std::vector<std::string>>{
           {"a", "b"}, {"a", "b", "item"}, {"copy_"}, {"a", "copy_"}, {"side", "drain"}}) {
    const Prediction p = Case(ops, 50).predict();
    double path = 0;
    for (const auto& step : p.critical_path.steps) path += step.us;
    EXPECT_NEAR(path, p.e2e_us, kNear) << ops.front() << " ... " << ops.back();
  }
}

TEST(PredictedLaunches, CountDeviceCallsPerTopLevelOp) {
  const Case c({"a", "item", "copy_", "view"}, 1);
  EXPECT_EQ(predicted_launches(c.graph, test_support::round_gpu(), &c.table.templates,
                               TemplateUse::kCallsAndWork),
            (std::vector<std::size_t>{1, 0, 1, 0}));
}

// ---- round trip --------------------------------------------------------------------------------

TEST(Predict, WhatWasRecordedComesBack) {
  // Five equal steps, then overheads, templates and kernel times of that recording.
  TinyRun run;
  double first = 0, second = 0;
  for (int step = 1; step <= 5; ++step) {
    if (step == 2) first = run.now();
    if (step == 3) second = run.now();
    run.label("ProfilerStep#" + std::to_string(step), [&] {
      run.spend(4);
      run.label("## forward ##", [&] {
        run.op("x", [&] {
          run.spend(2);
          run.launch(4, 60);
          run.spend(5);
          run.op("child", [&] {
            run.spend(1);
            run.launch(4, 70);
          });
          run.spend(3);
        });
        run.spend(6);
        run.op("plain", [&] { run.spend(8); });
        run.spend(2);
      });
      run.spend(3);
      run.on_thread(1, [&] {
        run.op("back", [&] {
          run.launch(4, 20);
          run.spend(9);
          run.blocking_copy(10, 15, 2);
        });
      });
      run.spend(5);
      run.op("item", [&] {
        run.launch(4, 3);
        run.spend(1);
        run.sync(3);
        run.spend(2);
      });
      run.spend(7);
    });
  }
  const OverheadSource source{.trace = &run.trace(), .graph = &run.graph()};
  const auto table = extract_overheads({&source, 1}, {});
  ASSERT_TRUE(table) << to_string(table.error());
  const auto times = kernel_times(run.graph(), run.trace());
  ASSERT_TRUE(times) << to_string(times.error());
  const auto p = predict(run.graph(), test_support::round_gpu(), *table, {.kernel_times = &*times});
  ASSERT_TRUE(p) << to_string(p.error());
  EXPECT_NEAR(p->e2e_us, second - first, 0.01);
  EXPECT_NEAR(p->gpu_active_us, 60 + 70 + 20 + 15 + 3, kNear);
  expect_consistent(*p);
}

// ---- Lin et al. --------------------------------------------------------------------------------

TEST(PredictLin, FollowsThePublishedTraversal) {
  // Kernels cost 5 us more than priced. a: T1 3, T2 2 (by name), launch at 5: kernel 5 + 4 to 9 +
  // 55; host 9, T3 1. b: T1, T2 to 15; kernel max(64 + 1, 19) to 120. End max(host 20, device 120).
  Case c({"a", "b"}, 50);
  c.table.method = OverheadMethod::kLin;
  for (const char* op : {"a", "b"}) {
    c.table.t2.by_name[hash_text(op)] = {op, exactly(2)};
    c.table.t3.by_name[hash_text(op)] = {op, exactly(1)};
  }
  const Prediction p = c.predict();
  EXPECT_NEAR(p.e2e_us, 120, kNear);
  EXPECT_NEAR(p.cpu_us, 20, kNear);
  EXPECT_NEAR(p.kernel_sum_us, 110, kNear);
}

}  // namespace predict_test
}  // namespace perfmodel
