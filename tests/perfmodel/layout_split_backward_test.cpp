// Schedules that split the backward pass: closed forms, whole lists, memory.
#include "layout/split_backward.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

namespace perfmodel::parallel {
namespace layout_split_backward_test {

struct Passes {
  double forward = 1, input = 1, weights = 1, hop = 0, hides = 0;
};

SplitEnds ends_of(SplitSchedule schedule, std::int64_t p, std::int64_t m, const Passes& passes = {},
                  std::int64_t most = 1 << 20) {
  const auto places = static_cast<std::size_t>(p * chunks_of(schedule));
  const std::vector<double> forward(places, passes.forward), input(places, passes.input),
      weights(places, passes.weights), hides(places, passes.hides);
  return split_ends({schedule, p, m, forward, input, weights, hides, hides, passes.hop}, most);
}

TEST(SplitBackward, ZbH1WaitsForForwardAndInputLessWeights) {
  for (const std::int64_t p : {1, 2, 3, 4, 8}) {
    for (const std::int64_t m : {8, 9, 16, 33}) {
      // m (F + B + W) + (p - 1)(F + B - W), of Qi et al., table 2.
      const auto wait = static_cast<double>(p - 1);
      EXPECT_EQ(ends_of(SplitSchedule::kZbH1, p, m).makespan_us, 3.0 * m + wait) << p << " " << m;
      EXPECT_EQ(ends_of(SplitSchedule::kZbH1, p, m, {5, 7, 3}).makespan_us, 15.0 * m + 9 * wait);
    }
  }
}

TEST(SplitBackward, ZbVWaitsForTheFirstForwardPassesAlone) {
  for (const std::int64_t p : {1, 2, 3, 4, 8}) {
    for (const std::int64_t m : {15, 16, 33}) {
      const SplitEnds ends = ends_of(SplitSchedule::kZbV, p, m);
      EXPECT_EQ(ends.makespan_us, 6.0 * m + static_cast<double>(p - 1)) << p << " " << m;
    }
  }
}

TEST(SplitBackward, DualPipeWaitsAsItsAuthorsSay) {
  // (p - 1)(F&B + B - 3 W) of 2 p places on p stages: 2 (p - 1) where all are 1.
  for (const std::int64_t p : {1, 2, 3, 4, 8}) {
    for (const std::int64_t m : {16, 17, 33}) {
      EXPECT_EQ(ends_of(SplitSchedule::kDualPipeV, p, m).makespan_us,
                6.0 * m + 2 * static_cast<double>(p - 1))
          << p << " " << m;
    }
  }
}

TEST(SplitBackward, DualPipeHidesCollectivesBesideKernels) {
  // A fifth of each pass is collectives. Another pass in parallel hides all of it.
  const std::int64_t p = 4, m = 32;
  const SplitEnds bare = ends_of(SplitSchedule::kDualPipeV, p, m);
  const SplitEnds hidden = ends_of(SplitSchedule::kDualPipeV, p, m, {.hides = 0.2});
  for (std::int64_t r = 0; r < p; ++r) {
    std::int64_t together = 0;
    for (const SplitOp& op : split_order(SplitSchedule::kDualPipeV, p, m, r)) {
      together += op.kind == SplitOp::Kind::kTogether ? 1 : 0;
    }
    EXPECT_NEAR(hidden.hidden_us[static_cast<std::size_t>(r)], 0.4 * static_cast<double>(together),
                1e-9);
  }
  EXPECT_LT(hidden.makespan_us, bare.makespan_us - 0.4 * 2 * (m - 2 * p));
}

TEST(SplitBackward, EveryPassIsDoneOnce) {
  for (const auto schedule :
       {SplitSchedule::kZbH1, SplitSchedule::kZbV, SplitSchedule::kDualPipeV}) {
    for (const std::int64_t p : {1, 2, 3, 5, 8}) {
      for (const std::int64_t m : {2 * p, 2 * p + 1, 4 * p + 3}) {
        for (std::int64_t r = 0; r < p; ++r) {
          std::set<std::tuple<int, int, int>> done;  // forward, input, weights
          const auto once = [&](int what, int chunk, int microbatch) {
            EXPECT_TRUE(done.insert({what, chunk, microbatch}).second);
          };
          for (const SplitOp& op : split_order(schedule, p, m, r)) {
            using Kind = SplitOp::Kind;
            const bool both = op.kind == Kind::kTogether;
            const auto chunk = both ? op.other_chunk : op.chunk;
            const auto microbatch = both ? op.other_microbatch : op.microbatch;
            if (op.kind == Kind::kForward || both) once(0, op.chunk, op.microbatch);
            if (op.kind == Kind::kInput || op.kind == Kind::kBackward || both) {
              once(1, chunk, microbatch);
            }
            if (op.kind == Kind::kWeights || op.kind == Kind::kBackward || both) {
              once(2, chunk, microbatch);
            }
          }
          EXPECT_EQ(done.size(), static_cast<std::size_t>(3 * m * chunks_of(schedule)));
        }
      }
    }
  }
}

TEST(SplitBackward, FewMicrobatchesEndToo) {
  for (const std::int64_t p : {2, 4, 8}) {
    for (std::int64_t m = 1; m < 2 * p; ++m) {
      for (const auto schedule : {SplitSchedule::kZbH1, SplitSchedule::kZbV}) {
        const double work = 3.0 * static_cast<double>(m * chunks_of(schedule));
        const double once = 2.0 * static_cast<double>(p * chunks_of(schedule)) + 1;
        EXPECT_GE(ends_of(schedule, p, m).makespan_us, std::max(work, once));
      }
    }
  }
}

TEST(SplitBackward, ActivationsInFlight) {
  for (const std::int64_t p : {2, 4, 8}) {
    for (std::int64_t r = 0; r < p; ++r) {
      // As many as the first stage of 1F1B holds: p microbatches, in chunks of half a stage.
      EXPECT_EQ(split_live_chunks(SplitSchedule::kZbH1, p, 64, r), p);
      EXPECT_EQ(split_live_chunks(SplitSchedule::kZbV, p, 64, r), 2 * p);
      EXPECT_EQ(split_live_chunks(SplitSchedule::kDualPipeV, p, 64, r), 2 * p + 1);
    }
  }
}

TEST(SplitBackward, LongRunsGoOnAtTheirPace) {
  for (const auto schedule :
       {SplitSchedule::kZbH1, SplitSchedule::kZbV, SplitSchedule::kDualPipeV}) {
    const Passes passes{5, 7, 3, 1, 0.5};
    const SplitEnds whole = ends_of(schedule, 4, 1000, passes);
    const SplitEnds short_run = ends_of(schedule, 4, 1000, passes, 64);
    EXPECT_NEAR(short_run.makespan_us, whole.makespan_us, 1e-6 * whole.makespan_us);
  }
}

}  // namespace layout_split_backward_test
}  // namespace perfmodel::parallel
