#include "layout/pipeline_schedule.hpp"

#include <algorithm>

#include "layout/pipeline_sweep.hpp"
#include "parallel_cases.hpp"

namespace perfmodel::parallel {
namespace layout_pipeline_schedule_test {

/// Model order: chunk c of stage r is at c p + r.
struct Stages {
  std::vector<double> forward, backward;
};

Stages equal_stages(std::size_t count, double forward, double backward) {
  return {.forward = std::vector<double>(count, forward),
          .backward = std::vector<double>(count, backward)};
}

PipelineEnds ends_of(PipelineSchedule schedule, std::int64_t p, std::int64_t v, std::int64_t m,
                     const Stages& stages, double hop_us = 0) {
  return pipeline_ends({.schedule = schedule,
                        .stages = p,
                        .chunks = v,
                        .microbatches = m,
                        .forward_us = stages.forward,
                        .backward_us = stages.backward,
                        .hop_us = hop_us},
                       1 << 20);
}

/// Most forward passes of a stage whose backward pass has not run.
std::int64_t live_chunks(PipelineSchedule schedule, std::int64_t p, std::int64_t v, std::int64_t m,
                         std::int64_t stage) {
  std::int64_t live = 0, peak = 0;
  const auto order = pipeline_order(schedule, p, v, m, stage);
  for (const PipelineOp& op : *order) {
    live += op.backward ? -1 : 1;
    peak = std::max(peak, live);
  }
  return peak;
}

PipelineSchedule schedule_of(const std::string& name) {
  if (name == "gpipe") return PipelineSchedule::kGpipe;
  if (name == "1f1b") return PipelineSchedule::k1F1B;
  EXPECT_EQ(name, "interleaved");
  return PipelineSchedule::kInterleaved;
}

TEST(Pipeline, PublicCases) {
  const auto cases = public_cases("exact_pipeline_schedules.json");
  if (cases.is_null()) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  for (const auto& c : cases) {
    const std::string id = c.at("id");
    const auto &forward = c.at("forward"), &backward = c.at("backward");
    const std::size_t p = forward.size(), v = forward[0].size();
    const auto stages = static_cast<std::int64_t>(p), chunks = static_cast<std::int64_t>(v);
    const PipelineSchedule schedule = schedule_of(c.at("schedule"));
    const std::int64_t microbatches = c.at("microbatches");
    Stages times;
    for (std::size_t at = 0; at < p * v; ++at) {
      times.forward.push_back(forward[at % p][at / p]);
      times.backward.push_back(backward[at % p][at / p]);
    }
    const PipelineEnds ends =
        ends_of(schedule, stages, chunks, microbatches, times, c.at("hop_delay"));
    const auto& e = c.at("expected");
    expect_same(ends.makespan_us, e.at("makespan"), id);
    for (std::size_t r = 0; r < p; ++r) {
      expect_same(ends.last_backward_us[r], e.at("end_of_last_backward")[r], id);
      EXPECT_EQ(live_chunks(schedule, stages, chunks, microbatches, static_cast<std::int64_t>(r)),
                e.at("peak_live_forward_chunks")[r])
          << id;
    }
  }
}

TEST(Pipeline, EqualStagesFollowTheBubbleFormulas) {
  for (const std::int64_t p : {1, 2, 3, 4, 8}) {
    for (const std::int64_t m : {1, 2, 5, 16, 33}) {
      const Stages stages = equal_stages(static_cast<std::size_t>(p), 1, 2);
      for (const auto schedule : {PipelineSchedule::kGpipe, PipelineSchedule::k1F1B}) {
        EXPECT_EQ(ends_of(schedule, p, 1, m, stages).makespan_us,
                  static_cast<double>(m + p - 1) * 3);
      }
      for (std::int64_t r = 0; r < p; ++r) {
        EXPECT_EQ(live_chunks(PipelineSchedule::kGpipe, p, 1, m, r), m);
        EXPECT_EQ(live_chunks(PipelineSchedule::k1F1B, p, 1, m, r), std::min(p - r, m));
      }
    }
    for (const std::int64_t v : {1, 2, 4}) {
      for (const std::int64_t rounds : {2, 3, 7}) {
        const std::int64_t m = p * rounds;
        const Stages stages = equal_stages(static_cast<std::size_t>(p * v), 1, 2);
        EXPECT_EQ(ends_of(PipelineSchedule::kInterleaved, p, v, m, stages).makespan_us,
                  static_cast<double>(3 * m * v + 3 * (p - 1)));
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
  for (std::int64_t r = 0; r < 4; ++r) {
    EXPECT_EQ(live_chunks(PipelineSchedule::kInterleaved, 4, 3, 16, r), 15 - 2 * r);
  }
}

TEST(Pipeline, OneStageNeedsNoHops) {
  EXPECT_EQ(
      ends_of(PipelineSchedule::kInterleaved, 1, 3, 4, equal_stages(3, 1, 2), 100).makespan_us,
      4 * 3 * 3);
}

TEST(Pipeline, OneMicrobatchCrossesEveryHopTwice) {
  EXPECT_EQ(ends_of(PipelineSchedule::k1F1B, 5, 1, 1, equal_stages(5, 1, 2), 0.5).makespan_us,
            5 * 3 + 2 * 4 * 0.5);
}

TEST(Pipeline, SlowestStageSetsThePace) {
  // GPipe with a slow last stage: forwards are a chain of sum + (m-1) max, the backwards likewise.
  const Stages stages{.forward = {1, 2, 5}, .backward = {2, 4, 10}};
  const PipelineEnds ends = ends_of(PipelineSchedule::kGpipe, 3, 1, 10, stages);
  EXPECT_EQ(ends.makespan_us, (8 + 9 * 5) + (16 + 9 * 10));
  EXPECT_EQ(ends.last_backward_us, (std::vector<double>{159, 157, 153}));
}

TEST(Pipeline, ImpossibleRequestsAreErrors) {
  const auto message = [](PipelineSchedule schedule, std::int64_t p, std::int64_t v,
                          std::int64_t m) {
    const auto order = pipeline_order(schedule, p, v, m, 0);
    return order ? std::string("no error") : order.error().message;
  };
  EXPECT_EQ(message(PipelineSchedule::kInterleaved, 4, 2, 8), "no error");
  EXPECT_EQ(message(PipelineSchedule::kInterleaved, 4, 2, 6),
            "expected microbatches to be a multiple of the 4 stages of an interleaved pipeline, "
            "found 6");
  EXPECT_EQ(message(PipelineSchedule::kInterleaved, 4, 2, 0),
            "expected microbatches >= 1, found 0");
  EXPECT_EQ(message(PipelineSchedule::k1F1B, 4, 2, 8),
            "expected one chunk per stage for 1f1b, found 2");
  EXPECT_EQ(message(PipelineSchedule::k1F1B, 0, 1, 8), "expected stages >= 1, found 0");
  EXPECT_FALSE(pipeline_order(PipelineSchedule::k1F1B, 4, 1, 8, 4));
  EXPECT_FALSE(pipeline_order(PipelineSchedule::k1F1B, 1LL << 30, 1, 1LL << 30, 0));
}

}  // namespace layout_pipeline_schedule_test
}  // namespace perfmodel::parallel
