#include "sweep/sweep_points.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "sweep/work_list.hpp"

namespace perfmodel::sweep {
namespace sweep_points_test {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

RewriteAxis axis(const std::string& name, const std::vector<std::string>& values) {
  RewriteAxis made{.name = name};
  for (const std::string& value : values) {
    made.values.push_back({.text = value});
    if (value != "same") made.values.back().rewrite = NamedRewrite{"--" + name, {}};
  }
  return made;
}

// 2 x (3 x 2) x 2 x 2 x 3 = 144 rows, 12 in a group.
SweepSpec some_spec() {
  SweepSpec spec;
  spec.graphs = {{.name = "one", .identity = "11111111"},
                 {.name = "a, \"b\"; 50 %", .identity = "22222222"}};
  spec.axes = {axis("batch", {"same", "8", "O=N"}), axis("precision", {"same", "bf16"})};
  spec.applied = {0, 1};
  spec.gpus = {{.name = "t4"}, {.name = "mine", .identity = "33333333"}};
  spec.topologies = {"usual", "dgx-a100"};
  spec.strategies = {{},
                     {.strategy = ParallelStrategy::kDdp, .world = 8},
                     {.strategy = ParallelStrategy::kFsdp, .world = 8}};
  return spec;
}

std::set<std::string> keys(const SweepPoints& points) {
  std::set<std::string> all;
  for (std::uint64_t row = 0; row < points.count(); ++row) all.insert(points.key(row));
  return all;
}

TEST(SweepPoints, KeysSayWhatIsAsked) {
  const SweepSpec spec = some_spec();
  const SweepPoints points(spec);
  EXPECT_EQ(points.count(), 144U);
  EXPECT_EQ(points.per_group(), 12U);
  EXPECT_EQ(points.key(0), "graph=one@11111111;gpu=t4;topology=usual;strategy=none");
  EXPECT_EQ(points.key(143),
            "graph=a%2C %22b%22%3B 50 %25@22222222;batch=O=N;precision=bf16;gpu=mine@33333333;"
            "topology=dgx-a100;strategy=fsdp;world=8");
  EXPECT_EQ(points.columns(), "key,graph,batch,precision,gpu,topology,strategy,world");
  EXPECT_EQ(points.cells(0), points.key(0) + ",one,,,t4,usual,none,");
  EXPECT_EQ(points.cells(143),
            points.key(143) + ",\"a, \"\"b\"\"; 50 %\",O=N,bf16,mine,dgx-a100,fsdp,8");
}

TEST(SweepPoints, KeysLeadBackToTheirRows) {
  const SweepSpec spec = some_spec();
  const SweepPoints points(spec);
  for (std::uint64_t row = 0; row < points.count(); ++row) {
    EXPECT_EQ(points.index_of(points.key(row)), row) << points.key(row);
  }
  EXPECT_EQ(keys(points).size(), points.count());
  const std::string key = points.key(143);
  for (std::size_t size = 0; size < key.size(); ++size) {
    EXPECT_FALSE(points.index_of(key.substr(0, size))) << key.substr(0, size);
  }
  for (const char* other :
       {"graph=one@22222222;gpu=t4;topology=usual;strategy=none",
        "graph=one@11111111;batch=9;gpu=t4;topology=usual;strategy=none",
        "graph=one@11111111;sequence=9;gpu=t4;topology=usual;strategy=none",
        "graph=one@11111111;precision=bf16;batch=8;gpu=t4;topology=usual;strategy=none",
        "graph=one@11111111;gpu=t4;topology=usual;strategy=none;world=8", "", ";;;", "graph="}) {
    EXPECT_FALSE(points.index_of(other)) << other;
  }
}

TEST(SweepPoints, KeysDoNotDependOnTheOrderOfTheSpec) {
  const SweepSpec spec = some_spec();
  SweepSpec turned = some_spec();
  std::ranges::reverse(turned.graphs);
  std::ranges::reverse(turned.axes);
  turned.applied = {1, 0};
  for (RewriteAxis& one : turned.axes) std::ranges::reverse(one.values);
  std::ranges::reverse(turned.gpus);
  std::ranges::reverse(turned.topologies);
  std::ranges::reverse(turned.strategies);
  const SweepPoints first(spec), second(turned);
  EXPECT_EQ(keys(first), keys(second));
  EXPECT_NE(first.key(0), second.key(0));
}

TEST(SweepPoints, WhatIsAddedLeavesTheKeysAlone) {
  const SweepSpec spec = some_spec();
  SweepSpec more = some_spec();
  more.graphs.insert(more.graphs.begin(), {.name = "zero", .identity = "0"});
  more.axes[0].values.insert(more.axes[0].values.begin(), axis("", {"64"}).values[0]);
  more.axes.insert(more.axes.begin(), axis("optimizer", {"same", "fused"}));
  more.applied = {1, 2, 0};
  more.gpus.insert(more.gpus.begin(), {.name = "h20"});
  more.strategies.insert(more.strategies.begin(), {.strategy = ParallelStrategy::kDdp, .world = 4});
  const SweepPoints first(spec), second(more);
  const auto before = keys(first), after = keys(second);
  EXPECT_TRUE(std::ranges::includes(after, before));
  EXPECT_EQ(after.size(), second.count());
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges(const Chunks& chunks) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> all;
  for (std::uint64_t i = 0; i < chunks.count(); ++i) {
    all.emplace_back(chunks.rows(i).begin, chunks.rows(i).end);
  }
  return all;
}

TEST(SweepChunks, HoldWholeGroupsWhereTheyFit) {
  const SweepSpec spec = some_spec();
  const SweepPoints points(spec);  // 12 groups of 12
  EXPECT_THAT(ranges(Chunks(points, 100)), ElementsAre(std::pair(0, 96), std::pair(96, 144)));
  EXPECT_EQ(ranges(Chunks(points, 12)).size(), 12U);
  EXPECT_THAT(ranges(Chunks(points, 1000)), ElementsAre(std::pair(0, 144)));
}

TEST(SweepChunks, CutLargeGroups) {
  SweepSpec spec = some_spec();
  spec.axes.clear();
  spec.applied.clear();
  const SweepPoints points(spec);  // 2 groups of 12
  EXPECT_THAT(ranges(Chunks(points, 5)),
              ElementsAre(std::pair(0, 4), std::pair(4, 8), std::pair(8, 12), std::pair(12, 16),
                          std::pair(16, 20), std::pair(20, 24)));
  EXPECT_EQ(ranges(Chunks(points, 1)).size(), 24U);
}

TEST(SweepWorkList, HandsOutWhatIsMissing) {
  SweepSpec spec = some_spec();
  spec.axes.clear();
  spec.applied.clear();
  const SweepPoints points(spec);
  const Chunks chunks(points, 5);
  std::vector<bool> finished(24);
  for (std::size_t row : {1, 4, 5, 6, 7, 8}) finished[row] = true;
  WorkList all(chunks, finished, 0, 1);
  EXPECT_EQ(all.rows(), 18U);
  EXPECT_THAT(all.next(), ElementsAre(0, 2, 3));
  EXPECT_THAT(all.next(), ElementsAre(9, 10, 11));  // the second chunk is finished
  all.stop();
  EXPECT_THAT(all.next(), IsEmpty());
  WorkList second(chunks, finished, 1, 4);  // chunks 1 and 5
  EXPECT_EQ(second.rows(), 4U);
  EXPECT_THAT(second.next(), ElementsAre(20, 21, 22, 23));
  EXPECT_THAT(second.next(), IsEmpty());
  EXPECT_THAT(shards_with_gaps(chunks, finished, 6), ElementsAre(1, 3, 4, 5, 6));
}

}  // namespace sweep_points_test
}  // namespace perfmodel::sweep
