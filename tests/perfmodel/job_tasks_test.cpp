// Passes of made-up programs and their steady state.
#include "predict/job_tasks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stop_token>

namespace perfmodel {
namespace job_tasks_test {

// One op of 5 us on the host that launches one kernel; nothing on the device's side takes time of
// its own.
class Loop : public ::testing::Test {
 protected:
  Loop() {
    graph_.nodes.resize(1);
    graph_.nodes[0].name = graph_.names.intern("op");
    table_.device = {};
    table_.device.kernel_gap_us = 0;
  }

  RankProgram rank(double kernel_us) const {
    RankProgram made{.rank = {.graph = &graph_, .table = &table_}};
    HostProgram& program = made.program;
    program.steps = {{.name = "step"}};
    program.items.push_back({.node = 0, .subject = 0, .kernels = 1});
    program.kernels.push_back({.price = {.time = Microseconds(kernel_us)}});
    program.instructions.push_back({.what = HostWork{.us = 3}});
    program.instructions.push_back({.what = Launch{.host_us = 2, .kernel = 0}});
    return made;
  }

  static void synchronise(RankProgram& rank) {
    rank.program.instructions.push_back({.what = Synchronisation{.host_us = 1}});
  }
  static void make_collective(RankProgram& rank) {
    std::get<Launch>(rank.program.instructions[1].what).collective =
        rank.program.add({.meeting = 0});
  }

  ExecutionGraph graph_;
  OverheadTable table_;
  std::vector<std::string> warnings_;
};

TEST_F(Loop, OfAHostThatRunsAheadHasTheHostsPeriod) {
  const std::vector<RankProgram> ranks = {rank(10)};
  JobTasks tasks(ranks, 0);
  ASSERT_TRUE(find_steady_state(ranks, tasks, warnings_));
  EXPECT_TRUE(tasks.steady);
  EXPECT_TRUE(warnings_.empty());
  EXPECT_DOUBLE_EQ(tasks.period(0), 5);
  EXPECT_EQ(tasks.ranks[0]->pass_ends().size(), 3u);  // as few passes as tell
  // No rank waits, but the device needs 10 us per step.
  EXPECT_DOUBLE_EQ(steps_without({true}, ranks, tasks)->front(), 10);
}

TEST_F(Loop, ThatSynchronisesTakesHostAndDeviceInTurn) {
  std::vector<RankProgram> ranks = {rank(10)};
  synchronise(ranks[0]);
  JobTasks tasks(ranks, 0);
  ASSERT_TRUE(find_steady_state(ranks, tasks, warnings_));
  EXPECT_DOUBLE_EQ(tasks.period(0), 3 + 2 + 10 + 1);
}

TEST_F(Loop, OfTwoRanksWaitsForTheLaterOne) {
  std::vector<RankProgram> ranks = {rank(10), rank(10)};
  std::get<HostWork>(ranks[1].program.instructions[0].what).us = 43;
  for (RankProgram& one : ranks) {
    make_collective(one);
    synchronise(one);
  }
  JobTasks tasks(ranks, 1);
  ASSERT_TRUE(find_steady_state(ranks, tasks, warnings_));
  EXPECT_DOUBLE_EQ(tasks.period(0), 43 + 2 + 10 + 1);
  EXPECT_DOUBLE_EQ(tasks.period(1), 43 + 2 + 10 + 1);
  ASSERT_EQ(tasks.hubs.size(), 1u);
  EXPECT_EQ(tasks.rank_of(tasks.hubs[0].arrivals[1]), 1u);
  EXPECT_EQ(tasks.rank_of(tasks.hubs[0].task), 2u);  // belongs to no rank
  const auto alone = steps_without({false, true}, ranks, tasks);
  ASSERT_TRUE(alone);
  EXPECT_DOUBLE_EQ(alone->at(0), 3 + 2 + 10 + 1);
}

TEST_F(Loop, HasOtherTasksIfItsCollectivesDiffer) {
  std::vector<RankProgram> ranks = {rank(10), rank(20)};
  for (RankProgram& one : ranks) make_collective(one);
  EXPECT_TRUE(has_same_tasks(ranks[0], ranks[1]));
  ranks[1].program.collectives[0].waits_for_caller = false;
  EXPECT_FALSE(has_same_tasks(ranks[0], ranks[1]));
}

TEST_F(Loop, MayBeginAtGivenTimes) {
  std::vector<RankProgram> ranks = {rank(10), rank(10)};
  for (RankProgram& one : ranks) synchronise(one);
  JobTasks tasks(ranks, 0);
  ASSERT_TRUE(find_steady_state(ranks, tasks, warnings_));
  ASSERT_TRUE(start_together({107, 100}, tasks));
  EXPECT_TRUE(tasks.started);
  EXPECT_FALSE(tasks.steady);
  const double first = tasks.start(tasks.ranks[0]->pass_begins().back());
  const double second = tasks.start(tasks.ranks[1]->pass_begins().back());
  EXPECT_DOUBLE_EQ(first - second, 7);
}

TEST_F(Loop, EndsWhenAsked) {
  std::stop_source stop;
  stop.request_stop();
  std::vector<RankProgram> ranks = {rank(10)};
  ranks[0].rank.options.cancel = stop.get_token();
  JobTasks tasks(ranks, 0);
  const auto found = find_steady_state(ranks, tasks, warnings_);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, ErrorCode::kCancelled);
}

}  // namespace job_tasks_test
}  // namespace perfmodel
