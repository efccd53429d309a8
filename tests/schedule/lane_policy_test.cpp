// Lanes that pick their tasks at run time.

#include "perfmodel/detail/lane_policy.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace perfmodel {
namespace {

// Every lane does `count` tasks of its own duration; a lane may be `ahead` tasks in front of the
// slowest at most.
class Bounded final : public LanePolicy {
 public:
  Bounded(std::vector<double> durations, int count, int ahead)
      : durations_(std::move(durations)), done_(durations_.size()), count_(count), ahead_(ahead) {}

  std::optional<LaneTask> next(std::int32_t lane, double) override {
    const int own = done_[static_cast<std::size_t>(lane)];
    if (own >= count_ || own - slowest() > ahead_) return std::nullopt;
    return LaneTask{.duration_us = durations_[static_cast<std::size_t>(lane)], .term = own};
  }
  void ended(std::int32_t lane, const LaneTask& task, double) override {
    EXPECT_EQ(task.term, done_[static_cast<std::size_t>(lane)]++);
  }
  bool finished() const override { return slowest() >= count_; }
  const std::vector<int>& done() const { return done_; }

 private:
  int slowest() const { return *std::min_element(done_.begin(), done_.end()); }

  std::vector<double> durations_;
  std::vector<int> done_;
  int count_, ahead_;
};

TEST(LanePolicies, LanesWaitForEachOther) {
  // In lockstep each of 4 rounds takes the 3 us of the second lane.
  Bounded lockstep({1, 3, 2}, 4, 0);
  std::vector<LanePolicy*> lanes(3, &lockstep);
  const auto run = run_lanes(lanes, {.keep_tasks = true});
  ASSERT_TRUE(run) << to_string(run.error());
  EXPECT_EQ(run->end_us, 12);
  ASSERT_EQ(run->tasks.size(), 12U);
  EXPECT_EQ(run->tasks[0].lane, 0);  // in the order of ends
  EXPECT_EQ(run->tasks[1].lane, 2);
  EXPECT_EQ(run->tasks[2].end_us, 3);
  EXPECT_EQ(run->tasks[3].start_us, 3);
}

// The same lockstep, which wakes all lanes once a round is over, and counts questions.
class Woken final : public LanePolicy {
 public:
  explicit Woken(std::size_t lanes) : done_(lanes) {}
  std::optional<LaneTask> next(std::int32_t lane, double) override {
    ++questions;
    if (done_[static_cast<std::size_t>(lane)] > round_) return std::nullopt;
    return LaneTask{.duration_us = 1.0 + lane};
  }
  void ended(std::int32_t lane, const LaneTask&, double) override {
    ++done_[static_cast<std::size_t>(lane)];
    if (static_cast<std::size_t>(++in_round_) < done_.size()) return;
    in_round_ = 0;
    ++round_;
    wake_.all = true;
  }
  LaneWake wake() override { return std::exchange(wake_, {}); }
  bool finished() const override { return round_ >= 10; }

  int questions = 0;

 private:
  std::vector<int> done_;
  int round_ = 0, in_round_ = 0;
  LaneWake wake_;
};

TEST(LanePolicies, WaitingLanesAreAskedOnlyWhenWoken) {
  constexpr int kLanes = 100;
  Woken policy(kLanes);
  const auto run = run_lanes(std::vector<LanePolicy*>(kLanes, &policy));
  ASSERT_TRUE(run) << to_string(run.error());
  EXPECT_EQ(run->end_us, 10 * kLanes);
  // In each round a lane begins, and asks in vain when it is free. The slowest ends the round.
  EXPECT_LE(policy.questions, 10 * 2 * kLanes);
}

TEST(LanePolicies, TheLimitCutsRunningTasksOff) {
  Bounded free_running({1, 3}, 100, 100);
  std::vector<LanePolicy*> lanes(2, &free_running);
  const auto run = run_lanes(lanes, {.until_us = 9});
  ASSERT_TRUE(run);
  EXPECT_EQ(run->end_us, 9);
  EXPECT_EQ(free_running.done(), (std::vector<int>{9, 3}));  // an end at the limit counts
}

TEST(LanePolicies, SumsOfRoundedNumbersReachTheLimit) {
  Bounded free_running({0.1}, 1000, 1000);  // 0.1 added ten times is below 1, thirty times above 3
  std::vector<LanePolicy*> lanes(1, &free_running);
  ASSERT_TRUE(run_lanes(lanes, {.until_us = 3}));
  EXPECT_EQ(free_running.done(), (std::vector<int>{30}));
}

TEST(LanePolicies, LanesThatAllWaitAreAnError) {
  Bounded stuck({1, 1}, 5, -1);
  std::vector<LanePolicy*> lanes(2, &stuck);
  const auto run = run_lanes(lanes);
  ASSERT_FALSE(run);
  EXPECT_NE(run.error().message.find("found all 2 waiting for each other"), std::string::npos);
  EXPECT_TRUE(run_lanes(lanes, {.until_us = 5}));  // they may wait for the end
}

TEST(LanePolicies, DurationsAreFiniteAndNotNegative) {
  for (const double us :
       {-1.0, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    Bounded bad({us}, 1, 0);
    std::vector<LanePolicy*> lanes(1, &bad);
    EXPECT_FALSE(run_lanes(lanes)) << us;
  }
}

}  // namespace
}  // namespace perfmodel
