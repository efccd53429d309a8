// The search over layouts against pricing them one by one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "perfmodel/layout.hpp"
#include "predictor_cases.hpp"

namespace perfmodel {
namespace layout_search_test {

using ::testing::HasSubstr;

const LayoutPricer& search_pricer() {
  static const Predictor predictor =
      Predictor::load({.data = test_support::source_data(), .gpus = {"h100-sxm-80gb"}}).value();
  static const LayoutPricer made = LayoutPricer::make(predictor, {.gpu = "h100-sxm-80gb"}).value();
  return made;
}

// About 7 G parameters: whole states do not fit into a GPU, and half of the layouts of 8 GPUs do
// not.
LayoutJob search_job() {
  LayoutJob job;
  job.model = {.name = "seven",
               .layers = 32,
               .hidden = 4096,
               .heads = 32,
               .kv_heads = 8,
               .feed_forward = 14336,
               .vocabulary = 32000};
  job.sequence = 2048;
  job.global_batch = 16;
  return job;
}

LayoutSpace search_space() {
  return {.tp = {1, 2, 4, 8},
          .pp = {1, 2, 4},
          .vp = {1, 2},
          .micro_batch = {1, 2},
          .zero = {Sharding::kNone, Sharding::kZero1, Sharding::kZero3},
          .recompute = {LayoutRecompute::kNone, LayoutRecompute::kFull}};
}

std::vector<RankedLayout> one_by_one(const LayoutJob& job, std::int64_t gpus) {
  const LayoutSpace space = search_space();
  std::vector<RankedLayout> all;
  for (std::int64_t tp : space.tp) {
    for (std::int64_t pp : space.pp) {
      if (gpus % (tp * pp) != 0) continue;
      for (std::int64_t vp : space.vp) {
        for (std::int64_t micro_batch : space.micro_batch) {
          for (Sharding zero : space.zero) {
            for (LayoutRecompute recompute : space.recompute) {
              ParallelLayout layout;
              layout.dp = gpus / tp / pp;
              layout.tp = tp;
              layout.pp = pp;
              layout.vp = vp;
              layout.micro_batch = micro_batch;
              layout.zero = zero;
              layout.recompute = recompute;
              layout.sequence_parallel = tp > 1;
              auto made = search_pricer().predict(job, layout);
              if (made) all.push_back({layout, std::move(*made)});
            }
          }
        }
      }
    }
  }
  return all;
}

std::vector<double> steps_of(const std::vector<RankedLayout>& layouts) {
  std::vector<double> steps;
  for (const RankedLayout& one : layouts) steps.push_back(one.prediction.step_ms);
  return steps;
}

TEST(LayoutSearch, FindsWhatPricingEachFinds) {
  const LayoutJob job = search_job();
  auto all = one_by_one(job, 8);
  const std::size_t priced = all.size();
  std::erase_if(all, [](const RankedLayout& one) { return !one.prediction.fits; });
  ASSERT_GT(all.size(), 20u);
  ASSERT_LT(all.size(), priced);
  std::ranges::stable_sort(all, {}, [](const auto& one) { return one.prediction.step_ms; });
  const auto ranking = rank_layouts(search_pricer(), job, 8, search_space());
  ASSERT_TRUE(ranking) << to_string(ranking.error());
  auto best = steps_of(all);
  best.resize(10);
  EXPECT_EQ(steps_of(ranking->best), best);
  EXPECT_TRUE(ranking->complete);
  EXPECT_LT(ranking->priced, ranking->considered);  // some need no price
  // Nothing that fits is both faster and smaller than a point of the frontier.
  for (const RankedLayout& point : ranking->frontier) {
    for (const RankedLayout& other : all) {
      EXPECT_FALSE(other.prediction.step_ms < point.prediction.step_ms &&
                   other.prediction.reserved_bytes < point.prediction.reserved_bytes);
    }
  }
  // And its ends are the ends of all candidates.
  const auto smallest = std::ranges::min_element(
      all, {}, [](const auto& one) { return one.prediction.reserved_bytes; });
  EXPECT_EQ(ranking->frontier.front().prediction.reserved_bytes,
            smallest->prediction.reserved_bytes);
  EXPECT_EQ(ranking->frontier.back().prediction.step_ms, best.front());
}

LayoutJob expert_job() {
  LayoutJob job = search_job();
  job.model.layers = 16;
  job.model.experts = {.experts = 16, .top_k = 2, .hidden = 2048};
  return job;
}

// Searches with one number of expert ranks know no bounds of layers.
TEST(LayoutSearch, BoundsOfExpertLayersPassOverNothing) {
  const LayoutJob job = expert_job();
  LayoutSpace space = search_space();
  const auto all = rank_layouts(search_pricer(), job, 16, space);
  ASSERT_TRUE(all) << to_string(all.error());
  std::vector<double> best;
  std::vector<RankedLayout> points;
  std::int64_t priced = 0;
  for (const std::int64_t ep : {1, 2, 4, 8, 16}) {
    space.ep = {ep};
    const auto one = rank_layouts(search_pricer(), job, 16, space);
    ASSERT_TRUE(one) << to_string(one.error());
    std::ranges::copy(steps_of(one->best), std::back_inserter(best));
    std::ranges::copy(one->frontier, std::back_inserter(points));
    priced += one->priced;
  }
  std::ranges::sort(best);
  best.resize(10);
  EXPECT_EQ(steps_of(all->best), best);
  EXPECT_LT(all->priced, priced / 2);
  for (const RankedLayout& point : points) {
    const bool is_met = std::ranges::any_of(all->frontier, [&](const RankedLayout& other) {
      return other.prediction.step_ms <= point.prediction.step_ms &&
             other.prediction.reserved_bytes <= point.prediction.reserved_bytes;
    });
    EXPECT_TRUE(is_met) << point.prediction.step_ms;
    const auto least = search_pricer().at_least(job, point.layout);
    if (!least) continue;  // one expert per rank
    EXPECT_LE(least->step_ms, point.prediction.step_ms);
    EXPECT_LE(least->reserved_bytes, point.prediction.reserved_bytes);
    EXPECT_GT(least->reserved_bytes, 0.9 * point.prediction.reserved_bytes);
  }
}

TEST(LayoutSearch, SaysTheSameEachTime) {
  const auto once = rank_layouts(search_pricer(), search_job(), 16);
  const auto again = rank_layouts(search_pricer(), search_job(), 16);
  ASSERT_TRUE(once && again);
  EXPECT_EQ(steps_of(once->best), steps_of(again->best));
  EXPECT_EQ(steps_of(once->frontier), steps_of(again->frontier));
  EXPECT_EQ(once->priced, again->priced);
}

TEST(LayoutSearch, TellsTheLeastMemoryWhereNothingFits) {
  LayoutJob job = search_job();
  job.model.layers = 240;
  LayoutSpace space = search_space();
  space.offload = {LayoutOffload{}};
  const auto ranking = rank_layouts(search_pricer(), job, 2, space);
  ASSERT_TRUE(ranking) << to_string(ranking.error());
  EXPECT_TRUE(ranking->best.empty());
  double least = 0;
  for (const RankedLayout& one : one_by_one(job, 2)) {
    const double bytes = one.prediction.reserved_bytes;
    if (least == 0 || bytes < least) least = bytes;
  }
  EXPECT_EQ(ranking->smallest.prediction.reserved_bytes, least);
  EXPECT_FALSE(ranking->smallest.prediction.fits);
}

TEST(LayoutSearch, StopsWhenAsked) {
  std::stop_source stop;
  LayoutSearchOptions options{.cancel = stop.get_token()};
  std::int64_t steps = 0;
  options.progress = [&](std::int64_t done, std::int64_t all) {
    EXPECT_LE(done, all);
    if (++steps == 20) stop.request_stop();
  };
  const auto ranking = rank_layouts(search_pricer(), search_job(), 8, {}, options);
  ASSERT_TRUE(ranking);
  EXPECT_FALSE(ranking->complete);
  EXPECT_LE(ranking->priced, 20);
}

TEST(LayoutSearch, RefusesWhatCannotBeLaidOut) {
  EXPECT_THAT(rank_layouts(search_pricer(), search_job(), 0).error().message,
              HasSubstr("expected at least 1 GPU"));
  EXPECT_THAT(rank_layouts(search_pricer(), search_job(), 7, {.tp = {7}}).error().message,
              HasSubstr("expected a layout of 7 GPUs that divides"));
}

}  // namespace layout_search_test
}  // namespace perfmodel
