#include "layout/sharded_pass.hpp"

#include "parallel_cases.hpp"

namespace perfmodel::parallel {
namespace layout_sharded_pass_test {

ShardedPass pass_of(const std::vector<FsdpUnit>& units, const FsdpOptions& options) {
  return sharded_pass(
      units.size(), [&](std::size_t i) -> const FsdpUnit& { return units[i]; }, options);
}

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
    const ShardedPass pass = pass_of(units, options);
    const auto& e = c.at("expected");
    expect_same(pass.end_us, e.at("last_reduce_scatter_end"), id);
    expect_same(pass.end_us - pass.compute_us, e.at("exposed_total"), id);
  }
}

// L equal units, gather g = 1, scatter s = 1, forward 4, backward 8.
ShardedPass run(std::size_t count, const FsdpOptions& options,
                FsdpUnit unit = {.all_gather_us = 1,
                                 .reduce_scatter_us = 1,
                                 .forward_us = 4,
                                 .backward_us = 8}) {
  return pass_of(std::vector<FsdpUnit>(count, unit), options);
}

TEST(Fsdp, ComputeBoundExposesTheFirstGatherAndTheLastScatter) {
  const ShardedPass pass = run(5, {});
  EXPECT_EQ(pass.end_us, 1 + 5 * 4 + 5 * 8 + 1);
  EXPECT_EQ(pass.compute_us, 5 * (4 + 8));
  EXPECT_EQ(pass.comm_us, 5 + 4 + 5);  // the last unit is gathered once
}

TEST(Fsdp, FirstBackwardGatherIsExposedUnlessTheLastUnitIsKept) {
  EXPECT_EQ(run(5, {.keep_last_unit = false}).end_us, 21 + 1 + 5 * 8 + 1);
}

TEST(Fsdp, WithoutPrefetchEachUnitWaitsForScatterAndGather) {
  // Between two backwards: scatter 1 + gather 1, four times.
  for (const auto prefetch : {BackwardPrefetch::kPost, BackwardPrefetch::kNone}) {
    EXPECT_EQ(run(5, {.backward_prefetch = prefetch}).end_us, 21 + 5 * 8 + 4 * 2 + 1);
  }
}

TEST(Fsdp, ShardGradOpGathersOnce) {
  const ShardedPass pass =
      run(5, {.backward_prefetch = BackwardPrefetch::kNone, .reshard_after_forward = false});
  EXPECT_EQ(pass.end_us - pass.compute_us, 2);
  EXPECT_EQ(pass.comm_us, 5 + 5);
}

TEST(Fsdp, OneInflightGatherSerialisesForward) {
  // Each gather waits for the forward before it: 5 (1 + 4) in place of 1 + 5 x 4.
  EXPECT_EQ(run(5, {.max_inflight_all_gathers = 1}).end_us, 25 + 5 * 8 + 1);
  EXPECT_EQ(run(5, {.max_inflight_all_gathers = 0}).end_us, 21 + 5 * 8 + 1);
}

TEST(Fsdp, CommunicationBoundBackward) {
  // Gather 10, scatter 10, compute next to nothing: pre gathers 4, scatters 5, back to back.
  const ShardedPass pass =
      run(5, {.max_inflight_all_gathers = 0}, {.all_gather_us = 10, .reduce_scatter_us = 10});
  EXPECT_EQ(pass.end_us, 50 + 9 * 10);
}

TEST(Fsdp, RootUnitKeepsItsParameters) {
  std::vector<FsdpUnit> units(3, {.all_gather_us = 1, .forward_us = 4, .backward_us = 8});
  units[0].keeps_params = true;
  EXPECT_EQ(pass_of(units, {}).comm_us, 3 + 1);
}

}  // namespace layout_sharded_pass_test
}  // namespace perfmodel::parallel
