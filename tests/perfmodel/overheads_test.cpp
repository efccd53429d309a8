#include "perfmodel/overheads.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "../scratch.hpp"
#include "tiny_run.hpp"

namespace perfmodel {
namespace overheads_test {

using test_support::exactly;
using test_support::TinyRun;

OverheadTable extract(std::vector<OverheadSource> sources, const OverheadOptions& options = {}) {
  auto table = extract_overheads(sources, options);
  if (!table) {
    ADD_FAILURE() << to_string(table.error());
    return {};
  }
  return std::move(*table);
}
OverheadTable extract(TinyRun& run, const OverheadOptions& options = {}) {
  return extract({{.trace = &run.trace(), .graph = &run.graph()}}, options);
}
const OverheadStats& named(const OverheadTerm& term, const std::string& name) {
  static const OverheadStats none;
  const auto at = term.by_name.find(hash_text(name));
  return at == term.by_name.end() ? none : at->second.stats;
}

// Ops "a" (T2 2, launch 4, T3 3), "b" (T2 1, launch 4, T5 6, launch 8, T3 2) and "c" (TX 7), 5 us
// apart, inside one step with 10 us before and 20 us after them.
void plain_step(TinyRun& run, const std::string& step = "ProfilerStep#1") {
  run.label(step, [&] {
    run.spend(10);
    run.op("a", [&] {
      run.spend(2);
      run.launch(4, 1);
      run.spend(3);
    });
    run.spend(5);
    run.op("b", [&] {
      run.spend(1);
      run.launch(4, 1);
      run.spend(6);
      run.launch(8, 1);
      run.spend(2);
    });
    run.spend(5);
    run.op("c", [&] { run.spend(7); });
    run.spend(20);
  });
}

// ---- the five terms ----------------------------------------------------------------------------

TEST(ContextOverheads, TermsAreTheKnownGaps) {
  TinyRun run;
  plain_step(run);
  const OverheadTable table = extract(run);
  EXPECT_EQ(table.iterations, 1u);
  EXPECT_EQ(table.gpu, "Tiny GPU");
  EXPECT_EQ(table.sources, (std::vector<std::string>{"tiny.json"}));
  EXPECT_DOUBLE_EQ(named(table.t2, "a").mean_us, 2);
  EXPECT_DOUBLE_EQ(named(table.t2, "b").mean_us, 1);
  EXPECT_DOUBLE_EQ(table.t2.all.mean_us, 1.5);
  EXPECT_DOUBLE_EQ(named(table.t3, "a").mean_us, 3);
  EXPECT_DOUBLE_EQ(named(table.t3, "b").mean_us, 2);
  EXPECT_DOUBLE_EQ(named(table.t5, "b").mean_us, 6);
  EXPECT_EQ(named(table.t5, "a").count, 0u);
  EXPECT_DOUBLE_EQ(named(table.tx, "c").mean_us, 7);
  ASSERT_TRUE(table.t4.contains("cudaLaunchKernel"));
  EXPECT_EQ(table.t4.at("cudaLaunchKernel").count, 3u);
  EXPECT_DOUBLE_EQ(table.t4.at("cudaLaunchKernel").mean_us, 16.0 / 3);  // 4, 4, 8
  EXPECT_DOUBLE_EQ(table.t4.at("cudaLaunchKernel").median_us, 4);
  // Two gaps of 5 us and the border of the step, 10 + 20.
  EXPECT_DOUBLE_EQ(named(table.t1, "same parent").mean_us, 5);
  EXPECT_EQ(named(table.t1, "same parent").count, 2u);
  EXPECT_DOUBLE_EQ(named(table.t1, "iteration border").mean_us, 30);
  // Own time per op: its gaps and calls.
  EXPECT_DOUBLE_EQ(table.ops.at("a").mean_us, 9);
  EXPECT_DOUBLE_EQ(table.ops.at("b").mean_us, 21);
  EXPECT_DOUBLE_EQ(table.ops.at("c").mean_us, 7);
}

TEST(ContextOverheads, TheGraphIsNotNeeded) {
  TinyRun run;
  plain_step(run);
  const OverheadTable with = extract(run), without = extract({{.trace = &run.trace()}});
  EXPECT_DOUBLE_EQ(without.t1.all.mean_us, with.t1.all.mean_us);
  EXPECT_DOUBLE_EQ(without.t2.all.mean_us, with.t2.all.mean_us);
  EXPECT_DOUBLE_EQ(without.t3.all.mean_us, with.t3.all.mean_us);
  EXPECT_DOUBLE_EQ(without.t5.all.mean_us, with.t5.all.mean_us);
  EXPECT_DOUBLE_EQ(without.tx.all.mean_us, with.tx.all.mean_us);
}

TEST(ContextOverheads, MeansAndSpreadsAreThoseOfTheSamples) {
  // T2 of "a": 2, 4 and 9. Mean 5, median 4, deviations 9 + 1 + 16 = 26, std sqrt(26 / 3).
  TinyRun run;
  for (double t2 : {2.0, 4.0, 9.0}) {
    run.op("a", [&] {
      run.spend(t2);
      run.launch(4, 1);
    });
    run.spend(1);
  }
  const OverheadStats stats = named(extract(run).t2, "a");
  EXPECT_EQ(stats.count, 3u);
  EXPECT_DOUBLE_EQ(stats.mean_us, 5);
  EXPECT_DOUBLE_EQ(stats.median_us, 4);
  EXPECT_NEAR(stats.std_us, 2.943920, 1e-6);
}

TEST(ContextOverheads, StepsThatFollowAtOnceShareTheirBorderGap) {
  // Between the last op of a step and the first of the next: 20 + 4 + 10. The last step is alone:
  // 10 + 20 inside its marks.
  TinyRun run;
  plain_step(run, "ProfilerStep#1");
  run.spend(4);
  plain_step(run, "ProfilerStep#2");
  const OverheadTable table = extract(run);
  const OverheadStats border = named(table.t1, "iteration border");
  EXPECT_EQ(border.count, 2u);
  EXPECT_DOUBLE_EQ(border.mean_us, (34.0 + 30.0) / 2);
}

TEST(ContextOverheads, ClassesOfGapsAreKeptApart) {
  TinyRun run;
  run.label("## forward ##", [&] {
    run.op("a", [&] { run.spend(1); });
    run.spend(2);  // same parent
    run.op("a", [&] { run.launch(4, 1); });
  });
  run.spend(7);
  run.label("## loss ##", [&] { run.op("a", [&] { run.spend(1); }); });  // 7: label crossed
  run.spend(11);
  run.on_thread(1, [&] { run.op("d", [&] { run.spend(1); }); });  // 11: thread changed
  const OverheadTable table = extract(run);
  EXPECT_DOUBLE_EQ(named(table.t1, "same parent").mean_us, 2);
  EXPECT_DOUBLE_EQ(named(table.t1, "label crossed").mean_us, 7);
  EXPECT_DOUBLE_EQ(named(table.t1, "thread changed").mean_us, 11);
}

TEST(ContextOverheads, ContextsTellEqualNamesApart) {
  // "a" with a child "x" spends 2 before its launch, with a child "y" 10.
  TinyRun run;
  for (const auto& [child, t2] : {std::pair{"x", 2.0}, std::pair{"y", 10.0}, std::pair{"x", 4.0}}) {
    run.op("a", [&, child = child, t2 = t2] {
      run.spend(t2);
      run.op(child, [&] { run.launch(4, 1); });
    });
    run.spend(1);
  }
  const OverheadTable table = extract(run);
  const ExecutionGraph& graph = run.graph();
  const auto t2_of = [&](std::int32_t node) {
    const std::uint64_t key = subtree_key(graph, node);
    return table.t2.find({&key, 1}, hash_text("a"));
  };
  EXPECT_DOUBLE_EQ(t2_of(1).us, 3);  // nodes: root, a, x, a, y, a, x
  EXPECT_EQ(t2_of(1).level, KeyLevel::kContext);
  EXPECT_DOUBLE_EQ(t2_of(3).us, 10);
  EXPECT_DOUBLE_EQ(named(table.t2, "a").mean_us, 16.0 / 3);
}

// ---- waits -------------------------------------------------------------------------------------

TEST(ContextOverheads, WaitingForAStreamIsNoOverhead) {
  // The kernel runs for 500 us while the host waits; the synchronise itself costs 3 us.
  TinyRun run;
  run.op("item", [&] {
    run.spend(2);
    run.launch(4, 500);
    run.spend(1);
    run.sync(3);
    run.spend(5);
  });
  const OverheadTable table = extract(run);
  EXPECT_NEAR(table.t4.at("cudaStreamSynchronize").mean_us, 3, 1e-9);
  EXPECT_NEAR(table.ops.at("item").mean_us, 2 + 4 + 1 + 3 + 5, 1e-9);
  EXPECT_NEAR(named(table.t3, "item").mean_us, 5, 1e-9);
  EXPECT_NEAR(named(table.t5, "item").mean_us, 1, 1e-9);
}

TEST(ContextOverheads, IdleAndWakingSynchronisesAreKeptApart) {
  TinyRun run;
  run.op("item", [&] {
    run.launch(4, 100);
    run.sync(6);  // waits
    run.spend(1);
    run.sync(2);  // nothing left to wait for
  });
  const OverheadTable table = extract(run);
  EXPECT_NEAR(table.t4.at("cudaStreamSynchronize wake").mean_us, 6, 1e-9);
  EXPECT_NEAR(table.t4.at("cudaStreamSynchronize idle").mean_us, 2, 1e-9);
  EXPECT_NEAR(table.t4.at("cudaStreamSynchronize").mean_us, 4, 1e-9);
}

TEST(ContextOverheads, ABlockingCopyKeepsItsOwnTimeOnly) {
  TinyRun run;
  run.op("copy_", [&] {
    run.spend(2);
    run.blocking_copy(10, 300, 5);
    run.spend(1);
  });
  const OverheadTable table = extract(run);
  ASSERT_TRUE(table.t4.contains("cudaMemcpyAsync DtoH blocking"));
  EXPECT_NEAR(table.t4.at("cudaMemcpyAsync DtoH blocking").mean_us, 5, 1e-9);
  EXPECT_NEAR(table.device.blocking_read_latency_us, 10, 1e-9);
  EXPECT_NEAR(table.ops.at("copy_").mean_us, 8, 1e-9);  // 2 + 5 + 1
}

TEST(ContextOverheads, ASynchroniseBetweenOpsIsTakenOutOfTheGap) {
  // 5 us, a synchronise of 300 us that mostly waits (own 4), 6 us: T1 = 5 + 4 + 6.
  TinyRun run;
  run.op("a", [&] { run.launch(4, 300); });
  run.spend(5);
  run.sync(4);
  run.spend(6);
  run.op("b", [&] { run.spend(1); });
  const OverheadTable table = extract(run);
  EXPECT_NEAR(named(table.t1, "same parent").mean_us, 15, 1e-9);
}

// ---- the device's side -------------------------------------------------------------------------

TEST(ContextOverheads, LatenciesComeFromIdleStreamsAndGapsFromBusyOnes) {
  TinyRun run;
  run.op("a", [&] { run.launch(4, 100); });  // idle: kLatency after the call
  run.spend(1);
  run.op("b", [&] { run.launch(4, 100); });  // queued: kKernelGap after the first
  run.spend(400);
  run.op("c", [&] { run.set(4, 1); });
  const OverheadTable table = extract(run);
  EXPECT_NEAR(table.device.launch_latency_us, TinyRun::kLatency, 1e-9);
  EXPECT_NEAR(table.device.kernel_gap_us, TinyRun::kKernelGap, 1e-9);
  EXPECT_NEAR(table.device.copy_latency_us, TinyRun::kLatency, 1e-9);
}

// ---- templates ---------------------------------------------------------------------------------

const LaunchTemplate& template_of(const OverheadTable& table, const ExecutionGraph& graph,
                                  std::string_view name) {
  static const LaunchTemplate none;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != name) continue;
    const auto found = table.templates.find(template_keys(graph, node));
    return found.calls ? *found.calls : none;
  }
  return none;
}

TEST(ContextOverheads, TemplatesHoldKindOrderStreamAndPlace) {
  TinyRun run;
  run.op("mixed", [&] {
    run.set(4, 1);
    run.op("child", [&] { run.launch(4, 1, 7, "child_kernel"); });
    run.launch(4, 1, 20, "ncclDevKernel_AllReduce");
    run.op("child", [&] { run.launch(4, 1, 7, "child_kernel"); });
    run.blocking_copy(10, 2, 1);
    run.sync(1);
  });
  const OverheadTable table = extract(run);
  const LaunchTemplate& calls = template_of(table, run.graph(), "mixed");
  ASSERT_EQ(calls.size(), 4u);
  using Kind = TemplateCall::Kind;
  EXPECT_EQ(calls[0].kind, Kind::kSet);
  EXPECT_EQ(calls[0].after_children, 0);
  EXPECT_EQ(calls[1].kind, Kind::kKernel);
  EXPECT_TRUE(calls[1].collective);
  EXPECT_EQ(calls[1].after_children, 1);
  EXPECT_EQ(calls[1].stream, 1);  // role: the first stream that is not the main one
  EXPECT_EQ(calls[2].kind, Kind::kCopy);
  EXPECT_EQ(calls[2].copy, CopyKind::kDeviceToHost);
  EXPECT_TRUE(calls[2].blocking);
  EXPECT_TRUE(calls[2].pageable);
  EXPECT_EQ(calls[2].after_children, 2);
  EXPECT_EQ(calls[3].kind, Kind::kSync);
  EXPECT_EQ(calls[3].sync, SyncKind::kStream);
  const LaunchTemplate& child = template_of(table, run.graph(), "child");
  ASSERT_EQ(child.size(), 1u);
  EXPECT_EQ(child[0].kernel, "child_kernel");
  EXPECT_EQ(child[0].stream, 0);
}

TEST(ContextOverheads, TheMostCommonTemplateWins) {
  TinyRun run;
  for (int launches : {1, 2, 1}) {
    run.op("a", [&] {
      for (int i = 0; i < launches; ++i) run.launch(4, 1);
    });
    run.spend(1);
  }
  EXPECT_EQ(template_of(extract(run), run.graph(), "a").size(), 1u);
}

TEST(ContextOverheads, OpsWithoutCallsHaveEmptyTemplates) {
  TinyRun run;
  plain_step(run);
  const OverheadTable table = extract(run);
  const ExecutionGraph& graph = run.graph();
  for (const Node& node : graph.nodes) {
    if (graph.name(node) != "c") continue;
    const auto found = table.templates.find(template_keys(graph, node));
    ASSERT_NE(found.calls, nullptr);
    EXPECT_TRUE(found.calls->empty());
  }
}

// ---- look-ups ----------------------------------------------------------------------------------

TEST(OverheadTerm, BacksOffFromContextToNameToAll) {
  OverheadTerm term;
  term.all = exactly(1);
  term.by_name[hash_text("op")] = {"op", exactly(2)};
  term.by_context[30] = exactly(3);
  term.by_context[40] = exactly(4);
  const std::uint64_t both[] = {30, 40}, second[] = {99, 40}, none[] = {98, 99};
  EXPECT_EQ(term.find(both, hash_text("op")).us, 3);
  EXPECT_EQ(term.find(both, hash_text("op")).level, KeyLevel::kContext);
  EXPECT_EQ(term.find(second, hash_text("op")).us, 4);
  EXPECT_EQ(term.find(none, hash_text("op")).us, 2);
  EXPECT_EQ(term.find(none, hash_text("op")).level, KeyLevel::kName);
  EXPECT_EQ(term.find(none, hash_text("other")).us, 1);
  EXPECT_EQ(term.find(none, hash_text("other")).level, KeyLevel::kAll);
  EXPECT_EQ(OverheadTerm{}.find(both, 1).us, 0);
  EXPECT_EQ(OverheadTerm{}.find(both, 1).level, KeyLevel::kMissing);
}

TEST(OverheadTable, CallsBackOffToTheirNameAndToAllLaunches) {
  OverheadTable table;
  table.t4["cudaMemcpyAsync HtoD"] = exactly(9);
  table.t4["cudaMemcpyAsync"] = exactly(8);
  table.t4["cudaLaunchKernel"] = exactly(4, 3);
  table.t4["cuLaunchKernel"] = exactly(12, 1);
  EXPECT_EQ(table.call_us("cudaMemcpyAsync HtoD").us, 9);
  EXPECT_EQ(table.call_us("cudaMemcpyAsync DtoH blocking").us, 8);
  EXPECT_EQ(table.call_us("cudaMemcpyAsync DtoH blocking").level, KeyLevel::kName);
  EXPECT_EQ(table.call_us("cudaLaunchKernelExC").us, 4);  // another way to launch a kernel
  const auto unseen = table.call_us("cudaGraphLaunch");
  // All launches, copies among them: (4 * 3 + 12 + 8) / 5.
  EXPECT_DOUBLE_EQ(unseen.us, 32.0 / 5);
  EXPECT_EQ(unseen.level, KeyLevel::kAll);
  EXPECT_EQ(OverheadTable{}.call_us("cudaLaunchKernel").level, KeyLevel::kMissing);
}

TEST(OverheadTable, CallKeysNameDirectionAndBlocking) {
  TemplateCall call{.kind = TemplateCall::Kind::kCopy, .copy = CopyKind::kHostToDevice};
  call.call = "cudaMemcpyAsync";
  EXPECT_EQ(call_key(call), "cudaMemcpyAsync HtoD");
  call.copy = CopyKind::kDeviceToHost;
  call.blocking = true;
  EXPECT_EQ(call_key(call), "cudaMemcpyAsync DtoH blocking");
  call.kind = TemplateCall::Kind::kKernel;
  EXPECT_EQ(call_key(call), "cudaMemcpyAsync");
}

TEST(OverheadMethods, AreNamed) {
  for (auto method : {OverheadMethod::kRaw, OverheadMethod::kContext, OverheadMethod::kLin}) {
    EXPECT_EQ(parse_overhead_method(to_string(method)).value(), method);
  }
  EXPECT_FALSE(parse_overhead_method("median"));
}

// ---- several traces, windows, errors -----------------------------------------------------------

TEST(ContextOverheads, SourcesArePooledBySample) {
  // 2 and 4 from the first, 9 from the second.
  TinyRun first, second;
  for (double t2 : {2.0, 4.0}) {
    first.op("a", [&] {
      first.spend(t2);
      first.launch(4, 1);
    });
    first.spend(1);
  }
  second.op("a", [&] {
    second.spend(9);
    second.launch(4, 1);
  });
  const OverheadTable table = extract({{.trace = &first.trace(), .graph = &first.graph()},
                                       {.trace = &second.trace(), .graph = &second.graph()}});
  EXPECT_EQ(named(table.t2, "a").count, 3u);
  EXPECT_DOUBLE_EQ(named(table.t2, "a").mean_us, 5);
  EXPECT_EQ(table.sources.size(), 2u);
  EXPECT_EQ(table.iterations, 2u);
  EXPECT_EQ(table.gpu, "Tiny GPU");  // named once
}

TEST(ContextOverheads, AWindowUsesItsIterationsOnly) {
  TinyRun run;
  for (int step = 1; step <= 3; ++step) {
    run.label("ProfilerStep#" + std::to_string(step), [&] {
      run.op("a", [&] {
        run.spend(step);
        run.launch(4, 1);
      });
    });
  }
  EXPECT_DOUBLE_EQ(extract(run).t2.all.mean_us, 2);
  const OverheadTable last = extract(run, {.iterations = std::pair{1, 3}});
  EXPECT_EQ(last.iterations, 2u);
  EXPECT_DOUBLE_EQ(last.t2.all.mean_us, 2.5);
  EXPECT_DOUBLE_EQ(extract(run, {.iterations = std::pair{0, 1}}).t2.all.mean_us, 1);
  for (auto method : {OverheadMethod::kRaw, OverheadMethod::kLin}) {
    EXPECT_DOUBLE_EQ(extract(run, {.method = method, .iterations = std::pair{1, 3}}).t2.all.mean_us,
                     2.5);
  }
}

TEST(Overheads, AWindowOutOfRangeIsAnErrorOfEveryMethod) {
  TinyRun run;
  plain_step(run);
  const OverheadSource source{.trace = &run.trace(), .graph = &run.graph()};
  for (auto method : {OverheadMethod::kRaw, OverheadMethod::kContext, OverheadMethod::kLin}) {
    for (auto window : {std::pair{0, 2}, std::pair{1, 1}, std::pair{1, 0}}) {
      const auto table = extract_overheads({&source, 1}, {.method = method, .iterations = window});
      ASSERT_FALSE(table) << to_string(method);
      EXPECT_EQ(table.error().code, ErrorCode::kImpossible);
      EXPECT_NE(table.error().message.find("0:1"), std::string::npos) << table.error().message;
    }
  }
}

TEST(Overheads, ATraceWithoutDeviceActivityIsAnErrorOfEveryMethod) {
  TinyRun run;
  run.op("a", [&] { run.spend(5); });
  const OverheadSource source{.trace = &run.trace()};
  for (auto method : {OverheadMethod::kRaw, OverheadMethod::kContext, OverheadMethod::kLin}) {
    const auto table = extract_overheads({&source, 1}, {.method = method});
    ASSERT_FALSE(table) << to_string(method);
    EXPECT_NE(to_string(table.error()).find("tiny.json"), std::string::npos);
  }
}

TEST(Overheads, ATraceWithoutOpsIsAnErrorOfEveryMethod) {
  TinyRun run;
  run.label("ProfilerStep#1", [&] { run.launch(4, 1); });
  const OverheadSource source{.trace = &run.trace()};
  for (auto method : {OverheadMethod::kRaw, OverheadMethod::kContext, OverheadMethod::kLin}) {
    EXPECT_FALSE(extract_overheads({&source, 1}, {.method = method})) << to_string(method);
  }
}

TEST(Overheads, AGraphOfAnotherProgramIsAnError) {
  TinyRun run, other;
  plain_step(run);
  for (const char* name : {"x", "y", "z"}) other.op(name, [&] { other.spend(1); });
  const OverheadSource source{.trace = &run.trace(), .graph = &other.graph()};
  EXPECT_FALSE(extract_overheads({&source, 1}, {}));
}

// ---- Lin et al. --------------------------------------------------------------------------------

// Ops without launches at the given gaps, after one op with a launch.
OverheadTable lin_gaps(const std::vector<double>& gaps, double cost = 0) {
  TinyRun run;
  run.op("first", [&] { run.launch(9, 1); });
  for (double gap : gaps) {
    run.spend(gap);
    run.op("a", [&] { run.spend(1); });
  }
  return extract(run, {.method = OverheadMethod::kLin, .profiler_cost_us = cost});
}

TEST(LinOverheads, GapsCountBetween2And200UsExclusively) {
  const OverheadTable table = lin_gaps({2, 2.001, 100, 199.999, 200, 5000});
  EXPECT_EQ(table.t1.all.count, 3u);
  EXPECT_NEAR(table.t1.all.mean_us, (2.001 + 100 + 199.999) / 3, 1e-9);
}

TEST(LinOverheads, GapsLoseTheCostOfOneEvent) {
  EXPECT_NEAR(lin_gaps({10, 12}, 2).t1.all.mean_us, 9, 1e-9);
}

TEST(LinOverheads, LaunchesCostAConstant4Us) {
  const OverheadTable table = lin_gaps({10});
  EXPECT_DOUBLE_EQ(table.t4.at("cudaLaunchKernel").mean_us, 4);  // recorded: 9
  EXPECT_DOUBLE_EQ(table.t4.at("cudaMemcpyAsync").mean_us, 4);
}

TEST(LinOverheads, OutliersBeyondTukeysFencesAreCut) {
  // Sorted 10 11 12 13 100: quartiles 11 and 13, fences 11 - 3 and 13 + 3. 100 goes, 11.5 is left.
  const OverheadTable table = lin_gaps({10, 100, 12, 11, 13});
  EXPECT_EQ(table.t1.all.count, 4u);
  EXPECT_NEAR(table.t1.all.mean_us, 11.5, 1e-9);
  // On the fence is inside: sorted 10 11 12 13 16.
  EXPECT_EQ(lin_gaps({10, 16, 12, 11, 13}).t1.all.count, 5u);
}

TEST(LinOverheads, GapsInsideAnOpLoseTheCostOfTheEventsInThem) {
  // T2: 20 us less 2 for the child in it; T3: 7 us less 2 for the op itself.
  TinyRun run;
  run.op("a", [&] {
    run.spend(5);
    run.op("child", [&] { run.spend(10); });
    run.spend(5);
    run.launch(9, 1);
    run.spend(7);
  });
  const OverheadTable table = extract(run, {.method = OverheadMethod::kLin, .profiler_cost_us = 2});
  EXPECT_NEAR(named(table.t2, "a").mean_us, 18, 1e-9);
  EXPECT_NEAR(named(table.t3, "a").mean_us, 5, 1e-9);
}

// ---- files -------------------------------------------------------------------------------------

class OverheadFile : public ::testing::Test {
 protected:
  void SetUp() override { file_ = test_support::scratch() / "overheads.json"; }
  void TearDown() override { std::filesystem::remove(file_); }

  std::string error(const std::string& text) {
    std::ofstream(file_) << text;
    const auto table = read_overheads(file_);
    return table ? "no error" : to_string(table.error());
  }
  std::filesystem::path file_;
};

// Figures have four decimals in the file.
void expect_same(const OverheadStats& a, const OverheadStats& b) {
  EXPECT_NEAR(a.mean_us, b.mean_us, 5e-5);
  EXPECT_NEAR(a.std_us, b.std_us, 5e-5);
  EXPECT_EQ(a.count, b.count);
}
void expect_same(const OverheadTerm& a, const OverheadTerm& b) {
  expect_same(a.all, b.all);
  ASSERT_EQ(a.by_name.size(), b.by_name.size());
  for (const auto& [key, entry] : a.by_name) {
    ASSERT_TRUE(b.by_name.contains(key));
    EXPECT_EQ(entry.name, b.by_name.at(key).name);
    expect_same(entry.stats, b.by_name.at(key).stats);
  }
  ASSERT_EQ(a.by_context.size(), b.by_context.size());
  for (const auto& [key, stats] : a.by_context) {
    ASSERT_TRUE(b.by_context.contains(key));
    expect_same(stats, b.by_context.at(key));
  }
}

TEST_F(OverheadFile, ComesBackAsItWasWritten) {
  TinyRun run;
  plain_step(run);
  run.spend(9);
  run.label("ProfilerStep#2", [&] {
    run.label("## forward ##", [&] {
      run.op("mixed \"quoted\"", [&] {
        run.set(4, 1);
        run.launch(4, 1, 20, "ncclDevKernel_AllReduce");
        run.op("child", [&] { run.launch(3.125, 1); });
        run.blocking_copy(10, 2, 1);
        run.sync(1);
      });
    });
  });
  OverheadTable table = extract(run, {.profiler_cost_us = 0.25});
  table.command = "perfpredict overheads";
  table.device.event_gap_us = 2.75;
  ASSERT_TRUE(write_overheads(table, file_));
  const auto read = read_overheads(file_);
  ASSERT_TRUE(read) << to_string(read.error());
  EXPECT_EQ(read->method, table.method);
  EXPECT_EQ(read->gpu, table.gpu);
  EXPECT_EQ(read->sources, table.sources);
  EXPECT_EQ(read->command, table.command);
  EXPECT_EQ(read->profiler_cost_us, 0.25);
  EXPECT_EQ(read->iterations, table.iterations);
  expect_same(table.t1, read->t1);
  expect_same(table.t2, read->t2);
  expect_same(table.t3, read->t3);
  expect_same(table.t5, read->t5);
  expect_same(table.tx, read->tx);
  ASSERT_EQ(read->t4.size(), table.t4.size());
  for (const auto& [call, stats] : table.t4) expect_same(stats, read->t4.at(call));
  ASSERT_EQ(read->ops.size(), table.ops.size());
  for (const auto& [op, stats] : table.ops) expect_same(stats, read->ops.at(op));
  EXPECT_EQ(read->templates.lists, table.templates.lists);
  for (std::size_t level = 0; level < kTemplateLevels; ++level) {
    ASSERT_EQ(read->templates.by_key[level].size(), table.templates.by_key[level].size());
    for (const auto& [key, entry] : table.templates.by_key[level]) {
      const LaunchTemplates::Entry* same = read->templates.by_key[level].find(key);
      ASSERT_TRUE(same);
      EXPECT_EQ(same->list, entry.list);
      EXPECT_EQ(same->count, entry.count);
    }
  }
  ASSERT_EQ(read->gap_splits.size(), table.gap_splits.size());
  for (const auto& [key, split] : table.gap_splits) {
    EXPECT_NEAR(read->gap_splits.at(key).tail, split.tail, 5e-5);
    EXPECT_NEAR(read->gap_splits.at(key).head, split.head, 5e-5);
  }
  EXPECT_NEAR(read->device.launch_latency_us, table.device.launch_latency_us, 5e-5);
  EXPECT_NEAR(read->device.blocking_read_latency_us, table.device.blocking_read_latency_us, 5e-5);
  EXPECT_EQ(read->device.event_gap_us, 2.75);
  // A table that was read writes the same text again.
  OverheadTable again = *read;
  again.warnings = table.warnings;
  EXPECT_EQ(overheads_json(again), overheads_json(table));
}

TEST_F(OverheadFile, EveryMethodSurvivesTheFile) {
  TinyRun run;
  plain_step(run);
  for (auto method : {OverheadMethod::kRaw, OverheadMethod::kContext, OverheadMethod::kLin}) {
    const OverheadTable table = extract(run, {.method = method});
    ASSERT_TRUE(write_overheads(table, file_));
    const auto read = read_overheads(file_);
    ASSERT_TRUE(read) << to_string(read.error());
    EXPECT_EQ(read->method, method);
    expect_same(table.t1.all, read->t1.all);
    expect_same(table.t2.all, read->t2.all);
    expect_same(named(table.t2, "a"), named(read->t2, "a"));
  }
}

TEST_F(OverheadFile, BadFilesAreErrorsWithFileAndPointer) {
  EXPECT_NE(error("").find("expected"), std::string::npos);
  EXPECT_NE(error("{\n  \"a\": 1,,\n}").find(":2:10: expected JSON"), std::string::npos);
  EXPECT_NE(error("{}").find("/schema"), std::string::npos) << error("{}");
  EXPECT_NE(
      error(R"({"schema": "perfmodel-overheads", "version": 1, "method": "odd"})").find("/method"),
      std::string::npos);
  EXPECT_NE(
      error(R"({"schema": "perfmodel-overheads", "version": 1, "method": "raw"})").find("/t1"),
      std::string::npos);
  EXPECT_NE(error(R"({"schema": "perfmodel-overheads", "version": 2, "method": "raw"})")
                .find("/version: expected version 1, found 2, which needs a newer program"),
            std::string::npos);
  EXPECT_NE(error(R"({"schema": "perfmodel-overheads", "method": "raw"})").find("/version"),
            std::string::npos);
  EXPECT_NE(error("{}").find(file_.string()), std::string::npos);
  std::filesystem::remove(file_);
  EXPECT_FALSE(read_overheads(file_));
  EXPECT_FALSE(read_overheads(test_support::scratch()));
}

// A whole table with the given parts.
std::string table_text(const std::string& t2, const std::string& rest) {
  return R"({"schema": "perfmodel-overheads", "version": 1, "method": "raw", "t1": {"mean_us": 1},
             "t2": {"a/b": )" +
         t2 + R"(}, "t3": {}, "t4": {}, "t5": {}, "tx": {}, "ops": {})" + rest + "}";
}

TEST_F(OverheadFile, EveryFigureIsChecked) {
  const std::string good = R"({"mean_us": 2, "count": 3})";
  std::ofstream(file_) << table_text(good, "");
  ASSERT_TRUE(read_overheads(file_)) << to_string(read_overheads(file_).error());
  // Host and device have clocks of their own, so a kernel may seem to start before its call.
  std::ofstream(file_) << table_text(good, R"(, "device": {"launch_latency_us": -1})");
  ASSERT_TRUE(read_overheads(file_)) << to_string(read_overheads(file_).error());
  const std::vector<std::pair<std::string, std::string>> cases = {
      {table_text("2", ""), "/t2/a~1b: expected an object with mean_us, found none"},
      {table_text(R"({"mean_us": "2"})", ""),
       "/t2/a~1b/mean_us: expected a number of microseconds, found something else"},
      {table_text(R"({"mean_us": 1e300})", ""), "/t2/a~1b/mean_us: expected a number of micro"},
      {table_text(R"({"mean_us": -1})", ""),
       ":2:40: /t2/a~1b/mean_us: expected a number of microseconds from 0 on, found -1"},
      {table_text(R"({"mean_us": 2, "count": -1})", ""),
       "/t2/a~1b/count: expected a whole number from 0 to 9007199254740992, found something else"},
      {table_text(R"({"mean_us": 2, "count": 1e30})", ""), "/t2/a~1b/count: expected a whole"},
      {table_text(good, R"(, "iterations": 0.5)"), "/iterations: expected a whole number"},
      {table_text(good, R"(, "device": {"kernel_gap_us": null})"),
       "/device/kernel_gap_us: expected a number of microseconds"},
      {table_text(good, R"(, "contexts": {"t1": {"1f": [1, 2]}})"),
       "/contexts/t1/1f: expected [mean_us, std_us, count] or [..., tensors, key of the name], "
       "found something else"},
      {table_text(good, R"(, "contexts": {"t1": {"no": [1, 2, 3]}})"),
       "/contexts/t1/no: expected a key of hexadecimal digits, found another"},
      {table_text(good, R"(, "gap_splits": {"1f": [0.5, 1.5]})"),
       "/gap_splits/1f: expected two shares from 0 to 1, found something else"},
      {table_text(good, R"(, "templates": {"lists": [[{"copy": 4}]]})"),
       "/templates/lists/0/0/copy: expected a whole number from 0 to 3, found something else"},
      {table_text(good, R"(, "templates": {"lists": [[{"odd": 4}]]})"),
       "/templates/lists/0/0/odd: expected no such number of a call"},
      {table_text(good, R"(, "templates": {"lists": [[]], "keys": {"name": {"1f": [1, 1]}}})"),
       "expected the number of a list, found one out of range"}};
  for (const auto& [text, message] : cases) {
    EXPECT_NE(error(text).find(message), std::string::npos) << error(text);
  }
}

TEST_F(OverheadFile, CannotBeWrittenIntoNowhere) {
  const auto written = write_overheads({}, file_ / "no" / "such" / "folder.json");
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code, ErrorCode::kIo);
}

}  // namespace overheads_test
}  // namespace perfmodel
