#include "layout/sharded_timeline.hpp"

#include <limits>

#include "parallel_cases.hpp"

namespace perfmodel::parallel {
namespace layout_sharded_timeline_test {

TEST(Fsdp, PublicCases) {
  const auto cases = public_cases("exact_fsdp_timelines.json");
  if (cases.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  for (const auto& c : cases) {
    const std::string id = c.at("id"), prefetch = c.at("backward_prefetch");
    std::vector<FsdpUnit> units;
    for (std::size_t i = 0; i < c.at("units").get<std::size_t>(); ++i) {
      units.push_back({.all_gather_us = c.at("all_gather")[i],
                       .reduce_scatter_us = c.at("reduce_scatter")[i],
                       .forward_us = c.at("forward")[i],
                       .backward_us = c.at("backward")[i]});
    }
    const FsdpOptions options{.backward_prefetch = prefetch == "pre"    ? BackwardPrefetch::kPre
                                                   : prefetch == "post" ? BackwardPrefetch::kPost
                                                                        : BackwardPrefetch::kNone,
                              .max_inflight_all_gathers = c.at("max_inflight_all_gathers"),
                              .keep_last_unit = c.at("keep_last_unit"),
                              .reshard_after_forward = c.at("reshard_after_forward")};
    const auto timeline = fsdp_timeline(units, options);
    ASSERT_TRUE(timeline) << to_string(timeline.error());
    const auto& e = c.at("expected");
    expect_same(timeline->forward_end_us, e.at("forward_end"), id);
    expect_same(timeline->backward_compute_end_us, e.at("backward_compute_end"), id);
    expect_same(timeline->last_reduce_scatter_end_us, e.at("last_reduce_scatter_end"), id);
    expect_same(timeline->exposed_total_us, e.at("exposed_total"), id);
  }
}

// L equal units, gather g = 1, scatter s = 1, forward 4, backward 8.
FsdpTimeline run(std::size_t count, const FsdpOptions& options,
                 FsdpUnit unit = {.all_gather_us = 1,
                                  .reduce_scatter_us = 1,
                                  .forward_us = 4,
                                  .backward_us = 8}) {
  const std::vector<FsdpUnit> units(count, unit);
  return fsdp_timeline(units, options).value();
}

TEST(Fsdp, ComputeBoundExposesTheFirstGatherAndTheLastScatter) {
  const auto t = run(5, {});
  EXPECT_EQ(t.forward_end_us, 1 + 5 * 4);
  EXPECT_EQ(t.backward_compute_end_us, 21 + 5 * 8);
  EXPECT_EQ(t.last_reduce_scatter_end_us, 62);
  EXPECT_EQ(t.exposed_total_us, 2);
}

TEST(Fsdp, FirstBackwardGatherIsExposedUnlessTheLastUnitIsKept) {
  const auto t = run(5, {.keep_last_unit = false});
  EXPECT_EQ(t.backward_compute_end_us, 21 + 1 + 5 * 8);
  EXPECT_EQ(t.exposed_total_us, 3);
}

TEST(Fsdp, WithoutPrefetchEachUnitWaitsForScatterAndGather) {
  // Between two backwards: scatter 1 + gather 1, four times.
  for (const auto prefetch : {BackwardPrefetch::kPost, BackwardPrefetch::kNone}) {
    const auto t = run(5, {.backward_prefetch = prefetch});
    EXPECT_EQ(t.backward_compute_end_us, 21 + 5 * 8 + 4 * 2);
  }
}

TEST(Fsdp, ShardGradOpGathersOnce) {
  const auto t =
      run(5, {.backward_prefetch = BackwardPrefetch::kNone, .reshard_after_forward = false});
  EXPECT_EQ(t.exposed_total_us, 2);
  EXPECT_EQ(t.events.size(), 20u);  // 5 x (gather, forward, backward, scatter)
}

TEST(Fsdp, OneInflightGatherSerialisesForward) {
  // Each gather waits for the forward before it: 5 (1 + 4).
  EXPECT_EQ(run(5, {.max_inflight_all_gathers = 1}).forward_end_us, 25);
  EXPECT_EQ(run(5, {.max_inflight_all_gathers = 0}).forward_end_us, 21);
}

TEST(Fsdp, CommunicationBoundBackward) {
  // Gather 10, scatter 10, compute next to nothing: pre gathers 4, scatters 5, back to back.
  const auto t =
      run(5, {.max_inflight_all_gathers = 0}, {.all_gather_us = 10, .reduce_scatter_us = 10});
  EXPECT_EQ(t.forward_end_us, 50);
  EXPECT_EQ(t.last_reduce_scatter_end_us, 50 + 9 * 10);
}

TEST(Fsdp, PreIssuesTheGatherBeforeTheScatter) {
  // Two units, the second kept: gather of unit 1 runs from 9 (end of forward) beside backward 2.
  const auto t = run(2, {});
  const auto& gather = t.events[4];
  EXPECT_EQ(gather.kind, FsdpEvent::Kind::kAllGather);
  EXPECT_TRUE(gather.in_backward);
  EXPECT_EQ(gather.unit, 0);
  EXPECT_EQ(gather.start_us, 9);
}

TEST(Fsdp, RootUnitKeepsItsParameters) {
  std::vector<FsdpUnit> units(3, {.all_gather_us = 1, .forward_us = 4, .backward_us = 8});
  units[0].keeps_params = true;
  EXPECT_EQ(fsdp_timeline(units).value().events.size(), 3u * 4 + 1);
}

TEST(Fsdp, OddNumbersAreErrors) {
  EXPECT_FALSE(fsdp_timeline({}));
  std::vector<FsdpUnit> units(2);
  EXPECT_FALSE(fsdp_timeline(units, {.max_inflight_all_gathers = -1}));
  units[1].backward_us = -1;
  const auto result = fsdp_timeline(units);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message.find("backward of unit 2"), std::string::npos);
  units[1] = {.all_gather_us = std::numeric_limits<double>::quiet_NaN()};
  EXPECT_FALSE(fsdp_timeline(units));
}

}  // namespace layout_sharded_timeline_test
}  // namespace perfmodel::parallel
