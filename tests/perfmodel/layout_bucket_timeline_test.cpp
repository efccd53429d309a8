#include "layout/bucket_timeline.hpp"

#include <limits>

#include "parallel_cases.hpp"

namespace perfmodel::parallel {
namespace layout_bucket_timeline_test {

using Params = std::vector<std::int32_t>;

std::vector<Params> params_of(const std::vector<DdpBucket>& buckets) {
  std::vector<Params> lists;
  for (const DdpBucket& bucket : buckets) lists.push_back(bucket.params);
  return lists;
}

TEST(Ddp, PublicCases) {
  const auto cases = public_cases("exact_ddp_buckets.json");
  if (cases.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  for (const auto& c : cases) {
    const std::string id = c.at("id");
    std::vector<Gradient> gradients;
    for (std::size_t i = 0; i < c.at("param_bytes").size(); ++i) {
      gradients.push_back({.bytes = c["param_bytes"][i], .ready_us = c["grad_ready_us"][i]});
    }
    const DdpOptions options{
        .first_bucket_bytes = c.at("first_bucket_bytes"),
        .bucket_cap_bytes = c.at("bucket_cap_bytes"),
        .first_iteration_single_bucket = c.at("first_iteration_single_bucket")};
    const double alpha = c.at("allreduce_alpha_us"), beta = c.at("allreduce_us_per_byte");
    const auto timeline =
        ddp_timeline(gradients, options, [&](double bytes) { return alpha + beta * bytes; });
    ASSERT_TRUE(timeline) << to_string(timeline.error());
    const auto& expected = c.at("expected");
    ASSERT_EQ(timeline->buckets.size(), expected.at("buckets").size()) << id;
    for (std::size_t i = 0; i < timeline->buckets.size(); ++i) {
      const DdpBucket& bucket = timeline->buckets[i];
      const auto& e = expected["buckets"][i];
      EXPECT_EQ(bucket.params, e.at("params").get<Params>()) << id;
      expect_same(bucket.bytes, e.at("bytes"), id);
      expect_same(bucket.ready_us, e.at("ready_us"), id);
      expect_same(bucket.start_us, e.at("start_us"), id);
      expect_same(bucket.end_us, e.at("end_us"), id);
    }
    expect_same(timeline->backward_end_us, expected.at("backward_end_us"), id);
    expect_same(timeline->comm_end_us, expected.at("comm_end_us"), id);
    expect_same(timeline->exposed_comm_us, expected.at("exposed_comm_us"), id);
  }
}

// Four gradients of 10 bytes, the last parameter first. First limit 5: {3} closes at once; cap 20:
// {2, 1}; the tail {0}. All-reduces of 4 us + 1 us per byte.
TEST(Ddp, BucketsOverlapWithBackward) {
  const std::vector<Gradient> gradients = {{10, 40}, {10, 30}, {10, 20}, {10, 10}};
  const auto timeline = ddp_timeline(gradients, {.first_bucket_bytes = 5, .bucket_cap_bytes = 20},
                                     [](double bytes) { return 4 + bytes; });
  ASSERT_TRUE(timeline);
  EXPECT_EQ(params_of(timeline->buckets), (std::vector<Params>{{3}, {2, 1}, {0}}));
  EXPECT_EQ(timeline->buckets[0].start_us, 10);
  EXPECT_EQ(timeline->buckets[0].end_us, 24);
  EXPECT_EQ(timeline->buckets[1].start_us, 30);  // its last gradient
  EXPECT_EQ(timeline->buckets[1].end_us, 54);
  EXPECT_EQ(timeline->buckets[2].ready_us, 40);
  EXPECT_EQ(timeline->buckets[2].start_us, 54);  // the stream is taken
  EXPECT_EQ(timeline->comm_end_us, 68);
  EXPECT_EQ(timeline->backward_end_us, 40);
  EXPECT_EQ(timeline->exposed_comm_us, 28);
}

TEST(Ddp, EqualTimesTakeTheHigherIndexFirst) {
  const std::vector<Gradient> gradients = {{1, 5}, {1, 5}, {1, 5}};
  const auto buckets = assign_ddp_buckets(gradients, {.bucket_cap_bytes = 100});
  EXPECT_EQ(params_of(buckets.value()), (std::vector<Params>{{2, 1, 0}}));
}

TEST(Ddp, FirstIterationHasOneBucketPerGroup) {
  std::vector<Gradient> gradients(6, {1000, 1});
  const DdpOptions options{
      .first_bucket_bytes = 1, .bucket_cap_bytes = 1, .first_iteration_single_bucket = true};
  EXPECT_EQ(assign_ddp_buckets(gradients, options).value().size(), 1u);
  gradients[1].group = 7;
  EXPECT_EQ(assign_ddp_buckets(gradients, options).value().size(), 2u);
}

TEST(Ddp, GroupsFillTheirOwnBuckets) {
  // Ready order 4, 3, 2, 1, 0; groups 0, 1, 0, 1, 0; limits 10, then 30, for each group.
  const std::vector<Gradient> gradients = {
      {10, 50, 0}, {10, 40, 1}, {10, 30, 0}, {10, 20, 1}, {10, 10, 0}};
  const auto buckets =
      assign_ddp_buckets(gradients, {.first_bucket_bytes = 10, .bucket_cap_bytes = 30}).value();
  EXPECT_EQ(params_of(buckets), (std::vector<Params>{{4}, {3}, {2, 0}, {1}}));
}

TEST(Ddp, SparseGradientsStandAlone) {
  std::vector<Gradient> gradients = {{10, 30}, {10, 20}, {10, 10}};
  gradients[1].sparse = true;
  const auto buckets = assign_ddp_buckets(gradients, {.first_bucket_bytes = 100}).value();
  EXPECT_EQ(params_of(buckets), (std::vector<Params>{{1}, {2, 0}}));
}

TEST(Ddp, NoGradientsNoBuckets) {
  const auto timeline = ddp_timeline({}, {}, [](double) { return 1.0; });
  ASSERT_TRUE(timeline);
  EXPECT_TRUE(timeline->buckets.empty());
  EXPECT_EQ(timeline->exposed_comm_us, 0);
}

TEST(Ddp, OddNumbersAreErrors) {
  const auto free_of_charge = [](double) { return 0.0; };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Gradient> negative = {{-1, 0}}, late = {{1, nan}}, fine = {{1, 1}};
  EXPECT_FALSE(ddp_timeline(negative, {}, free_of_charge));
  EXPECT_FALSE(ddp_timeline(late, {}, free_of_charge));
  EXPECT_FALSE(ddp_timeline(fine, {.bucket_cap_bytes = nan}, free_of_charge));
  EXPECT_FALSE(assign_ddp_buckets(fine, {.first_bucket_bytes = -1}));
  const auto bad_cost = ddp_timeline(fine, {}, [](double) { return -2.0; });
  ASSERT_FALSE(bad_cost);
  EXPECT_NE(bad_cost.error().message.find("all-reduce time"), std::string::npos);
}

}  // namespace layout_bucket_timeline_test
}  // namespace perfmodel::parallel
