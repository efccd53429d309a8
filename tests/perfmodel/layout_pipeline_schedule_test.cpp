#include "layout/pipeline_schedule.hpp"

#include <limits>

#include "parallel_cases.hpp"

namespace perfmodel::parallel {
namespace layout_pipeline_schedule_test {

using Rows = std::vector<std::vector<double>>;

PipelineSchedule schedule_of(const std::string& name) {
  if (name == "gpipe") return PipelineSchedule::kGpipe;
  if (name == "1f1b") return PipelineSchedule::k1F1B;
  EXPECT_EQ(name, "interleaved");
  return PipelineSchedule::kInterleaved;
}

PipelineWork equal_stages(PipelineSchedule schedule, std::size_t p, std::size_t v, std::int64_t m,
                          double forward, double backward) {
  return {.schedule = schedule,
          .microbatches = m,
          .forward_us = Rows(p, std::vector<double>(v, forward)),
          .backward_us = Rows(p, std::vector<double>(v, backward))};
}

TEST(Pipeline, PublicCases) {
  const auto cases = public_cases("exact_pipeline_schedules.json");
  if (cases.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  for (const auto& c : cases) {
    const std::string id = c.at("id");
    const auto timeline = pipeline_timeline({.schedule = schedule_of(c.at("schedule")),
                                             .microbatches = c.at("microbatches"),
                                             .forward_us = c.at("forward"),
                                             .backward_us = c.at("backward"),
                                             .hop_delay_us = c.at("hop_delay")});
    ASSERT_TRUE(timeline) << to_string(timeline.error());
    const auto& e = c.at("expected");
    expect_same(timeline->makespan_us, e.at("makespan"), id);
    EXPECT_EQ(timeline->peak_live_forward_chunks,
              e.at("peak_live_forward_chunks").get<std::vector<std::int64_t>>())
        << id;
    for (std::size_t r = 0; r < timeline->busy_us.size(); ++r) {
      expect_same(timeline->busy_us[r], e.at("busy")[r], id);
      expect_same(timeline->end_of_last_backward_us[r], e.at("end_of_last_backward")[r], id);
    }
  }
}

TEST(Pipeline, EqualStagesFollowTheBubbleFormulas) {
  for (const std::size_t p : {1, 2, 3, 4, 8}) {
    const auto stages = static_cast<std::int64_t>(p);
    for (const std::int64_t m : {1, 2, 5, 16, 33}) {
      const double expected = static_cast<double>(m + stages - 1) * 3;
      const auto gpipe = pipeline_timeline(equal_stages(PipelineSchedule::kGpipe, p, 1, m, 1, 2));
      const auto one = pipeline_timeline(equal_stages(PipelineSchedule::k1F1B, p, 1, m, 1, 2));
      EXPECT_EQ(gpipe->makespan_us, expected);
      EXPECT_EQ(one->makespan_us, expected);
      EXPECT_NEAR(one->bubble_share,
                  static_cast<double>(stages - 1) / static_cast<double>(m + stages - 1), 1e-12);
      for (std::int64_t r = 0; r < stages; ++r) {
        const auto stage = static_cast<std::size_t>(r);
        EXPECT_EQ(gpipe->peak_live_forward_chunks[stage], m);
        EXPECT_EQ(one->peak_live_forward_chunks[stage], std::min(stages - r, m));
      }
    }
    for (const std::size_t v : {1, 2, 4}) {
      for (const std::int64_t rounds : {2, 3, 7}) {
        const std::int64_t m = stages * rounds;
        const auto chunks = static_cast<double>(v);
        const auto t =
            pipeline_timeline(equal_stages(PipelineSchedule::kInterleaved, p, v, m, 1, 2));
        EXPECT_EQ(t->makespan_us,
                  static_cast<double>(m) * 3 * chunks + static_cast<double>(stages - 1) * 3);
      }
    }
  }
}

TEST(Pipeline, InterleavedWithAsManyMicrobatchesAsStagesRunsAllForwardsFirst) {
  const auto order = pipeline_order(PipelineSchedule::kInterleaved, 2, 2, 2, 0).value();
  std::vector<std::int32_t> chunks, microbatches;
  for (const PipelineOp& op : order) {
    chunks.push_back(op.backward ? -op.chunk - 1 : op.chunk);
    microbatches.push_back(op.microbatch);
  }
  EXPECT_EQ(chunks, (std::vector<std::int32_t>{0, 0, 1, 1, -2, -2, -1, -1}));
  EXPECT_EQ(microbatches, (std::vector<std::int32_t>{0, 1, 0, 1, 0, 1, 0, 1}));
}

TEST(Pipeline, InterleavedWarmUpHoldsMoreChunks) {
  // w = 2 (p-1-r) + (v-1) p forwards, then one more before the first backward.
  const auto t = pipeline_timeline(equal_stages(PipelineSchedule::kInterleaved, 4, 3, 16, 1, 2));
  EXPECT_EQ(t->peak_live_forward_chunks, (std::vector<std::int64_t>{15, 13, 11, 9}));
}

TEST(Pipeline, OneStageNeedsNoHops) {
  auto work = equal_stages(PipelineSchedule::kInterleaved, 1, 3, 4, 1, 2);
  work.hop_delay_us = 100;
  EXPECT_EQ(pipeline_timeline(work)->makespan_us, 4 * 3 * 3);
}

TEST(Pipeline, OneMicrobatchCrossesEveryHopTwice) {
  auto work = equal_stages(PipelineSchedule::k1F1B, 5, 1, 1, 1, 2);
  work.hop_delay_us = 0.5;
  EXPECT_EQ(pipeline_timeline(work)->makespan_us, 5 * 3 + 2 * 4 * 0.5);
}

TEST(Pipeline, SlowestStageSetsThePace) {
  // GPipe with a slow last stage: forwards are a chain of sum + (m-1) max, the backwards likewise.
  const PipelineWork work{.schedule = PipelineSchedule::kGpipe,
                          .microbatches = 10,
                          .forward_us = {{1}, {2}, {5}},
                          .backward_us = {{2}, {4}, {10}}};
  const auto t = pipeline_timeline(work);
  EXPECT_EQ(t->makespan_us, (8 + 9 * 5) + (16 + 9 * 10));
  EXPECT_EQ(t->busy_us, (std::vector<double>{30, 60, 150}));
  EXPECT_EQ(t->end_of_last_backward_us, (std::vector<double>{159, 157, 153}));
}

TEST(Pipeline, ThousandsOfMicrobatchesAreQuick) {
  const auto t = pipeline_timeline(equal_stages(PipelineSchedule::k1F1B, 16, 1, 10000, 1, 2));
  EXPECT_EQ(t->makespan_us, (10000 + 15) * 3);
}

TEST(Pipeline, ImpossibleRequestsAreErrors) {
  const auto message = [](const PipelineWork& work) {
    const auto timeline = pipeline_timeline(work);
    return timeline ? std::string("no error") : timeline.error().message;
  };
  const auto good = equal_stages(PipelineSchedule::kInterleaved, 4, 2, 8, 1, 2);
  EXPECT_EQ(message(good), "no error");
  auto work = good;
  work.microbatches = 6;
  EXPECT_EQ(message(work),
            "expected microbatches to be a multiple of the 4 stages of an interleaved pipeline, "
            "found 6");
  work.microbatches = 0;
  EXPECT_EQ(message(work), "expected microbatches >= 1, found 0");
  work = good;
  work.schedule = PipelineSchedule::k1F1B;
  EXPECT_EQ(message(work), "expected one chunk per stage for 1f1b, found 2");
  work = good;
  work.backward_us.pop_back();
  EXPECT_EQ(message(work), "expected backward times of 4 stages, found 3");
  work = good;
  work.forward_us[2].push_back(1);
  EXPECT_EQ(message(work), "expected forward times of 2 chunks on stage 2, found 3");
  work = good;
  work.backward_us[1][0] = -1;
  EXPECT_NE(message(work).find("backward time of stage 1, chunk 0"), std::string::npos);
  work.backward_us[1][0] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(message(work), "no error");
  work = good;
  work.hop_delay_us = -1;
  EXPECT_NE(message(work), "no error");
  work = good;
  work.forward_us.clear();
  EXPECT_EQ(message(work), "expected stages >= 1, found 0");
  EXPECT_FALSE(pipeline_order(PipelineSchedule::k1F1B, 4, 1, 8, 4));
  EXPECT_FALSE(pipeline_order(PipelineSchedule::k1F1B, 1LL << 30, 1, 1LL << 30, 0));
}

}  // namespace layout_pipeline_schedule_test
}  // namespace perfmodel::parallel
