#include "overheads/pool_overheads.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "../scratch.hpp"
#include "overheads/collector_cost.hpp"
#include "tiny_run.hpp"

namespace perfmodel {
namespace pool_overheads_test {

using test_support::exactly;

const OverheadStats& named(const OverheadTerm& term, const std::string& name) {
  return term.by_name.at(hash_text(name)).stats;
}

// A program of two ops and a launch on a host that takes `slower` times as long.
OverheadTable program(double slower, std::uint64_t count = 10) {
  OverheadTable table{.gpu = "G"};
  table.ops = {{"a", exactly(10 * slower, count)}, {"b", exactly(30 * slower, count)}};
  table.t4["cudaLaunchKernel"] = exactly(5 * slower, count);
  table.t2.all = exactly(20 * slower, 2 * count);
  table.t2.by_name[hash_text("a")] = {"a", exactly(10 * slower, count)};
  table.t2.by_name[hash_text("b")] = {"b", exactly(30 * slower, count)};
  table.t1.all = exactly(8 * slower, count);
  table.t1.by_name[gap_class_key(GapClass::kSibling)] = {"same parent", exactly(8 * slower, count)};
  return table;
}

// ---- hosts -------------------------------------------------------------------------------------

TEST(CompareHosts, FindsTheFactorOfEveryHost) {
  const OverheadTable one = program(1), three = program(3), half = program(0.5);
  const PoolMember members[] = {{"one", &one}, {"three", &three}, {"half", &half}};
  const auto hosts = compare_hosts(members);
  ASSERT_EQ(hosts.size(), 3u);
  EXPECT_NEAR(hosts[0].slower, 1, 1e-9);
  EXPECT_NEAR(hosts[1].slower, 3, 1e-9);
  EXPECT_NEAR(hosts[2].slower, 0.5, 1e-9);
  EXPECT_NEAR(hosts[1].shared, 1, 1e-9);
}

TEST(CompareHosts, ARareOpThatDoesOtherWorkUnderTheSameNameDecidesNothing) {
  OverheadTable one = program(1);
  OverheadTable two = program(2);
  one.ops["c"] = exactly(3, 1);
  two.ops["c"] = exactly(90, 1);  // its first call sets a library up
  const PoolMember members[] = {{"one", &one}, {"two", &two}};
  const auto hosts = compare_hosts(members);
  EXPECT_NEAR(hosts[1].slower, 2, 1e-9);
}

TEST(CompareHosts, EveryWayToLaunchIsALaunch) {
  OverheadTable cuda, hip;
  cuda.t4["cudaLaunchKernel"] = exactly(5, 9);
  hip.t4["hipExtModuleLaunchKernel"] = exactly(10, 9);
  const PoolMember members[] = {{"cuda", &cuda}, {"hip", &hip}};
  EXPECT_NEAR(compare_hosts(members)[1].slower, 2, 1e-9);
}

TEST(CompareHosts, ProgramsThatShareNothingAreTakenAsEqual) {
  OverheadTable one, other;
  one.ops["a"] = exactly(5);
  other.ops["b"] = exactly(50);
  const PoolMember members[] = {{"one", &one}, {"other", &other}};
  const auto hosts = compare_hosts(members);
  EXPECT_EQ(hosts[1].slower, 1);
  EXPECT_EQ(hosts[1].shared, 0);
}

TEST(ScaleToSharedOps, BringsATableToTheOtherHostAndLeavesTheDevice) {
  const OverheadTable reference = program(1);
  OverheadTable table = program(4);
  table.t5.by_context[2] = exactly(8);
  table.device.launch_latency_us = 2;
  const OverheadScaling scaling = scale_to_shared_ops(table, reference);
  EXPECT_NEAR(scaling.factor, 0.25, 1e-9);
  EXPECT_NEAR(scaling.coverage, 1, 1e-9);
  EXPECT_NEAR(named(table.t2, "b").mean_us, 30, 1e-9);
  EXPECT_NEAR(table.t5.by_context[2].mean_us, 2, 1e-9);
  EXPECT_NEAR(table.t4["cudaLaunchKernel"].mean_us, 5, 1e-9);
  EXPECT_NEAR(table.ops["a"].mean_us, 10, 1e-9);
  EXPECT_EQ(table.device.launch_latency_us, 2);
}

TEST(ScaleToSharedOps, NothingSharedChangesNothing) {
  OverheadTable reference, table;
  reference.ops = {{"a", exactly(10)}};
  table.ops = {{"b", exactly(20)}};
  table.t1.all = exactly(3);
  EXPECT_EQ(scale_to_shared_ops(table, reference).coverage, 0);
  EXPECT_EQ(table.t1.all.mean_us, 3);
  EXPECT_EQ(scale_to_shared_ops(table, OverheadTable{}).coverage, 0);
}

// ---- pooling -----------------------------------------------------------------------------------

TEST(PoolOverheads, ThreeHostsOfOneProgramGiveItsFiguresOnTheReferenceHost) {
  const OverheadTable one = program(1), three = program(3), half = program(0.5);
  const PoolMember members[] = {{"one", &one}, {"three", &three}, {"half", &half}};
  for (const auto& [reference, factor] :
       {std::pair("one", 1.0), std::pair("three", 3.0), std::pair("", std::cbrt(1.5))}) {
    const auto pooled = pool_overheads(members, reference);
    ASSERT_TRUE(pooled) << to_string(pooled.error());
    // Drawn a little to the mean of both names.
    EXPECT_NEAR(named(pooled->t2, "a").mean_us, 10 * factor, 0.2 * factor);
    EXPECT_NEAR(named(pooled->t2, "b").mean_us, 30 * factor, 0.3 * factor);
    EXPECT_NEAR(named(pooled->t1, "same parent").mean_us, 8 * factor, 1e-6);
    EXPECT_NEAR(pooled->call_us("cudaLaunchKernel").us, 5 * factor, 1e-6);
    ASSERT_EQ(pooled->programs.size(), 3u);
    EXPECT_NEAR(pooled->programs[1].host_scale, factor / 3, 1e-6);
    EXPECT_NEAR(pooled->programs[1].launch_us, 15, 1e-9);
  }
}

TEST(PoolOverheads, ALongRecordingWeighsNoMoreThanAShortOne) {
  OverheadTable seldom = program(1, 100), often = program(1, 100'000);
  seldom.t2.by_name[hash_text("a")].stats = exactly(10, 100);
  often.t2.by_name[hash_text("a")].stats = exactly(14, 100'000);
  const PoolMember members[] = {{"seldom", &seldom}, {"often", &often}};
  const auto pooled = pool_overheads(members, "seldom");
  ASSERT_TRUE(pooled);
  // 12, a little nearer to the mean of all names; by samples it would be 14.0.
  EXPECT_NEAR(named(pooled->t2, "a").mean_us, 12, 0.7);
  EXPECT_EQ(named(pooled->t2, "a").count, 100'100u);
  EXPECT_GT(named(pooled->t2, "a").std_us, 1.9);  // the programs differ by 4
}

TEST(PoolOverheads, AContextOfFewSamplesIsDrawnToItsName) {
  // Contexts scatter by 1.2 around their name; this one has 3 samples and says 7 times the name.
  OverheadTable first = program(1), second = program(1);
  const std::uint64_t name = hash_text("a");
  for (std::uint64_t context = 1; context <= 8; ++context) {
    const double us = context % 2 == 0 ? 8.3 : 12;
    first.t2.by_context[context] = {.mean_us = us, .std_us = us / 2, .median_us = us, .count = 50};
    second.t2.by_context[context] = {
        .mean_us = us * 1.3, .std_us = us / 2, .median_us = us, .count = 50};
    first.t2.name_of_context[context] = second.t2.name_of_context[context] = name;
  }
  first.t2.by_context[99] = {.mean_us = 70, .std_us = 20, .median_us = 70, .count = 3};
  first.t2.name_of_context[99] = name;
  const PoolMember members[] = {{"first", &first}, {"second", &second}};
  const auto pooled = pool_overheads(members, "first");
  ASSERT_TRUE(pooled);
  const double drawn = pooled->t2.by_context.at(99).mean_us;
  EXPECT_LT(drawn, 65);
  EXPECT_GT(drawn, 20);
  EXPECT_NEAR(pooled->t2.by_context.at(2).mean_us, 9.5, 0.5);  // two programs, 100 samples: stays
}

TEST(PoolOverheads, UnfitTablesAreLeftOutAndSaid) {
  const OverheadTable one = program(1);
  OverheadTable inflated = program(1);
  inflated.t2.by_name[hash_text("a")].stats = exactly(1000, 10);
  inflated.unfit_for_pools = "two collectors ran";
  const PoolMember members[] = {{"one", &one}, {"inflated", &inflated}};
  const auto pooled = pool_overheads(members, "one");
  ASSERT_TRUE(pooled);
  EXPECT_NEAR(named(pooled->t2, "a").mean_us, 10, 1);
  EXPECT_EQ(pooled->programs[1].left_out, "two collectors ran");
  ASSERT_EQ(pooled->warnings.size(), 1u);
  EXPECT_EQ(pooled->warnings[0], "inflated is left out: two collectors ran");
}

TEST(PoolOverheads, GapsOfARecordingWithPythonFramesAreNotTaken) {
  const OverheadTable plain = program(1);
  OverheadTable traced = program(1);
  traced.python_recorded = true;
  traced.t1.by_name[gap_class_key(GapClass::kSibling)].stats = exactly(80, 10);
  const PoolMember members[] = {{"plain", &plain}, {"traced", &traced}};
  const auto pooled = pool_overheads(members, "plain");
  ASSERT_TRUE(pooled);
  EXPECT_NEAR(named(pooled->t1, "same parent").mean_us, 8, 1e-6);
  EXPECT_EQ(named(pooled->t2, "a").count, 20u);  // the rest is
}

TEST(PoolOverheads, ListsAreBroughtToOneLengthBeforeTheyAreAveraged) {
  // 4 us for an op of any kind and 2 us per tensor, in lists of 10 and of 100.
  OverheadTable small = program(1), large = program(1);
  for (OverheadTable* table : {&small, &large}) table->t2.all = exactly(4, 100);
  const auto list = [](double tensors) {
    OverheadStats stats = exactly(4 + 2 * tensors, 10);
    stats.tensors = tensors;
    return stats;
  };
  const std::string name = "aten::_foreach_add_";
  small.t2.by_name[hash_text(name)] = {name, list(10)};
  large.t2.by_name[hash_text(name)] = {name, list(100)};
  const PoolMember members[] = {{"small", &small}, {"large", &large}};
  const auto pooled = pool_overheads(members, "small");
  ASSERT_TRUE(pooled);
  const OverheadStats& stats = named(pooled->t2, name);
  EXPECT_EQ(stats.tensors, 55);
  EXPECT_NEAR(stats.at_length(55, 4), 114, 8);    // shrunk a little towards the mean of all names
  EXPECT_NEAR(stats.at_length(300, 4), 604, 50);  // 10 and 100 averaged would be 114 for any list
}

TEST(PoolOverheads, BadInputIsAnError) {
  OverheadTable raw = program(1);
  raw.method = OverheadMethod::kRaw;
  const OverheadTable one = program(1);
  OverheadTable unfit = program(1);
  unfit.unfit_for_pools = "first step";
  const PoolMember mixed[] = {{"one", &one}, {"raw", &raw}}, alone[] = {{"unfit", &unfit}},
                   good[] = {{"one", &one}};
  EXPECT_EQ(pool_overheads(mixed).error().message,
            "expected tables of method context to pool, found raw of method raw");
  EXPECT_EQ(pool_overheads(alone).error().message,
            "expected at least one table that is fit to pool, found none");
  EXPECT_EQ(pool_overheads(good, "two").error().message,
            "expected one of the pooled programs as host, found two");
}

// ---- collectors
// --------------------------------------------------------------------------------

// A file with the table of a program as this collector recorded it.
std::string recorded(const std::string& name, Collector collector, double slower) {
  OverheadTable table = program(slower);
  table.collector = collector;
  const std::string file = test_support::scratch_file(name + ".json");
  EXPECT_TRUE(write_overheads(table, file));
  return file;
}

TEST(PooledFiles, LoseWhatEachCollectorWasMeasuredToCost) {
  const double with = *slowdown_under(Collector::kProfiler);
  const double plain = *slowdown_under(Collector::kProfilerWithoutShapes);
  const auto pooled =
      pool_overhead_files({recorded("with", Collector::kProfiler, with),
                           recorded("plain", Collector::kProfilerWithoutShapes, plain)},
                          "", {"measured"});
  ASSERT_TRUE(pooled) << to_string(pooled.error());
  EXPECT_EQ(pooled->without_collector, kWithoutProfiler);
  EXPECT_NEAR(pooled->programs[1].host_scale, 1, 1e-3);  // the same host
  EXPECT_NEAR(pooled->call_us("cudaLaunchKernel").us, 5 * with * kWithoutProfiler[3], 1e-2);
}

TEST(PooledFiles, OfACollectorThatWasNotMeasuredAreRefused) {
  const auto pooled =
      pool_overhead_files({recorded("odd", Collector::kUnknown, 1)}, "", {"measured"});
  ASSERT_FALSE(pooled);
  EXPECT_EQ(pooled.error().message,
            "expected tables whose collector's cost was measured, found odd with collector: not "
            "known");
}

// ---- lists and calls ---------------------------------------------------------------------------

TEST(OverheadStats, TimeAboveAnyOpGrowsWithTheList) {
  const OverheadStats list{.mean_us = 24, .count = 5, .tensors = 10};
  EXPECT_EQ(list.at_length(10, 4), 24);
  EXPECT_EQ(list.at_length(20, 4), 44);
  EXPECT_EQ(list.at_length(0, 4), 24);     // length not known: as it was learned
  EXPECT_EQ(list.at_length(20, 100), 24);  // no dearer than any other op
}

TEST(OverheadTable, CallsOfHipFallBackToThoseOfCuda) {
  OverheadTable table;
  table.t4["cudaLaunchKernel"] = exactly(5, 9);
  table.t4["cudaMemcpyAsync HtoD"] = exactly(7, 9);
  EXPECT_EQ(table.call_us("hipLaunchKernel").us, 5);
  EXPECT_EQ(table.call_us("hipMemcpyWithStream HtoD").us, 7);
  table.t4["hipLaunchKernel"] = exactly(6, 9);
  EXPECT_EQ(table.call_us("hipLaunchKernel").us, 6);
}

}  // namespace pool_overheads_test
}  // namespace perfmodel
