#include "rank_grid.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

RankTimes run(const RankGrid& grid) {
  auto times = grid.run();
  if (!times) {
    ADD_FAILURE() << to_string(times.error());
    return {};
  }
  return std::move(*times);
}

// Compute 10, all-reduce 4, compute 6.
struct Step {
  TaskGraph graph;
  TaskId collective = -1;

  Step() {
    graph.add_task(0, 10);
    collective = graph.add_task(0, 4);
    graph.add_task(0, 6);
  }
};

TEST(RankGrid, EqualRanksTakeTheTimeOfOne) {
  const Step step;
  RankGrid grid(step.graph, 3);
  grid.add_collective(step.collective, grid.add_communicator({0, 0, 0}));
  const RankTimes times = run(grid);
  EXPECT_EQ(times.end_us, (std::vector<double>{20, 20, 20}));
  EXPECT_EQ(times.waiting_us, (std::vector<double>{0, 0, 0}));
}

TEST(RankGrid, ALateRankHoldsTheOthersInTheCollective) {
  const Step step;
  RankGrid grid(step.graph, 3);
  grid.add_collective(step.collective, grid.add_communicator({7, 7, 7}));
  grid.set_start_us(1, 5);
  const RankTimes times = run(grid);
  EXPECT_EQ(times.end_us, (std::vector<double>{25, 25, 25}));
  EXPECT_EQ(times.waiting_us, (std::vector<double>{5, 0, 5}));
}

TEST(RankGrid, ASlowRankTakesLongerBesidesTheCollective) {
  // Rank 0: 15, then all 4, then 9 (others 6).
  const Step step;
  RankGrid grid(step.graph, 2);
  grid.add_collective(step.collective, grid.add_communicator({0, 0}));
  grid.set_slowdown(0, 1.5);
  const RankTimes times = run(grid);
  EXPECT_EQ(times.end_us, (std::vector<double>{28, 25}));
  EXPECT_EQ(times.waiting_us, (std::vector<double>{0, 5}));
}

TEST(RankGrid, GroupsWaitForTheirOwnRanksOnly) {
  // Ranks 0 and 2 in one group, 1 and 3 in another; ranks 2 and 3 are late by 1 and 8.
  const Step step;
  RankGrid grid(step.graph, 4);
  grid.add_collective(step.collective, grid.add_communicator({-3, 1'000'000, -3, 1'000'000}));
  grid.set_start_us(2, 1);
  grid.set_start_us(3, 8);
  const RankTimes times = run(grid);
  EXPECT_EQ(times.end_us, (std::vector<double>{21, 28, 21, 28}));
  EXPECT_EQ(times.waiting_us, (std::vector<double>{1, 8, 0, 0}));
}

TEST(RankGrid, LatenessTravelsThroughGroupsThatCross) {
  // Rows {0, 1} {2, 3}, then columns {0, 2} {1, 3}: rank 0's 10 us reach all of them.
  TaskGraph graph;
  const TaskId row = graph.add_task(0, 1), column = graph.add_task(0, 1);
  RankGrid grid(graph, 4);
  grid.add_collective(row, grid.add_communicator({0, 0, 1, 1}));
  grid.add_collective(column, grid.add_communicator({0, 1, 0, 1}));
  grid.set_start_us(0, 10);
  const RankTimes times = run(grid);
  EXPECT_EQ(times.end_us, (std::vector<double>{12, 12, 12, 12}));
  EXPECT_EQ(times.waiting_us, (std::vector<double>{0, 10, 10, 10}));
}

TEST(RankGrid, WithoutCollectivesRanksAreAlone) {
  const Step step;
  RankGrid grid(step.graph, 3);
  grid.set_start_us(1, 100);
  grid.set_slowdown(2, 2);
  EXPECT_EQ(run(grid).end_us, (std::vector<double>{20, 120, 40}));
}

TEST(RankGrid, ARankMayStartBeforeTheOthers) {
  const Step step;
  RankGrid grid(step.graph, 2);
  grid.set_start_us(0, -5);
  EXPECT_EQ(run(grid).end_us, (std::vector<double>{15, 20}));
}

TEST(RankGrid, NoTasksEndAtTheStart) {
  const TaskGraph graph;
  RankGrid grid(graph, 2);
  grid.set_start_us(1, 3);
  EXPECT_EQ(run(grid).end_us, (std::vector<double>{0, 3}));
}

TEST(RankGrid, ErrorsNameTheRankOrTheTask) {
  for (const double bad : {kNaN, kInfinity, -kInfinity}) {
    const Step step;
    RankGrid grid(step.graph, 2);
    grid.set_start_us(1, bad);
    const auto times = grid.run();
    ASSERT_FALSE(times) << bad;
    EXPECT_EQ(times.error().code, ErrorCode::kImpossible);
    EXPECT_NE(times.error().message.find("rank 1"), std::string::npos) << times.error().message;
  }
  for (const double bad : {kNaN, kInfinity, -0.5}) {
    const Step step;
    RankGrid grid(step.graph, 2);
    grid.set_slowdown(0, bad);
    const auto times = grid.run();
    ASSERT_FALSE(times) << bad;
    EXPECT_NE(times.error().message.find("rank 0"), std::string::npos) << times.error().message;
  }
  for (const double bad : {kNaN, kInfinity, -1.0}) {
    Step step;
    step.graph.set_duration_us(2, bad);
    const auto times = RankGrid(step.graph, 2).run();
    ASSERT_FALSE(times) << bad;
    EXPECT_NE(times.error().message.find("task 2"), std::string::npos) << times.error().message;
  }
  Step step;
  step.graph.add_edge(2, 0);
  const auto times = RankGrid(step.graph, 2).run();
  ASSERT_FALSE(times);
  EXPECT_NE(times.error().message.find("cycle"), std::string::npos) << times.error().message;
}

TEST(RankGridDeathTest, GroupsThatDoNotFitTheRanksAreBugs) {
  const Step step;
  RankGrid grid(step.graph, 2);
  EXPECT_DEATH(grid.add_communicator({0, 0, 0}), "check failed");
  EXPECT_DEATH(grid.add_collective(step.collective, 0), "check failed");
}

// One rank's tasks as a list, and what the ranks differ in.
struct Job {
  struct Task {
    std::int32_t lane;
    double duration, gap;
    int communicator = -1;
  };
  struct Edge {
    TaskId from, to;
    double lag;
    TaskGraph::EdgeKind kind;
  };
  std::vector<Task> tasks;
  std::vector<Edge> edges;
  std::vector<std::vector<std::int32_t>> communicators;  // group per rank
  std::vector<double> start, slowdown;

  std::size_t ranks() const { return start.size(); }

  TaskGraph one_rank() const {
    TaskGraph graph;
    for (const Task& task : tasks) graph.add_task(task.lane, task.duration, task.gap);
    for (const Edge& edge : edges) graph.add_edge(edge.from, edge.to, edge.lag, edge.kind);
    return graph;
  }

  RankTimes as_grid() const {
    const TaskGraph graph = one_rank();
    RankGrid grid(graph, ranks());
    for (const auto& groups : communicators) grid.add_communicator(groups);
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].communicator < 0) continue;
      grid.add_collective(static_cast<TaskId>(i), static_cast<std::size_t>(tasks[i].communicator));
    }
    for (std::size_t r = 0; r < ranks(); ++r) {
      grid.set_start_us(r, start[r]);
      grid.set_slowdown(r, slowdown[r]);
    }
    return run(grid);
  }

  // The same as a graph of all ranks' tasks. A collective is an arrival on its lane, a hub per
  // group that waits for all arrivals, and the transfer on the lane behind both.
  RankTimes as_copies() const {
    TaskGraph graph;
    std::vector<std::vector<TaskId>> begins(ranks()), ends(ranks());
    std::map<std::pair<std::size_t, std::int32_t>, TaskId> hubs;  // task and group
    std::vector<std::pair<TaskId, TaskId>> hub_edges;
    const auto lanes = static_cast<std::int32_t>(tasks.size());
    for (std::size_t r = 0; r < ranks(); ++r) {
      const TaskId clock = graph.add_task(TaskGraph::kNoLane, start[r]);
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        const Task& task = tasks[i];
        const std::int32_t lane =
            task.lane < 0 ? TaskGraph::kNoLane : static_cast<std::int32_t>(r) * lanes + task.lane;
        const bool meets = task.communicator >= 0;
        begins[r].push_back(
            graph.add_task(lane, meets ? 0 : task.duration * slowdown[r], task.gap));
        ends[r].push_back(meets ? graph.add_task(lane, task.duration) : begins[r].back());
        graph.add_edge(clock, begins[r].back());
        if (!meets) continue;
        const auto group = communicators[static_cast<std::size_t>(task.communicator)][r];
        const auto [hub, added] = hubs.try_emplace({i, group}, -1);
        if (added) hub->second = graph.add_task(TaskGraph::kNoLane, 0);
        hub_edges.emplace_back(begins[r].back(), hub->second);
        hub_edges.emplace_back(hub->second, ends[r].back());
      }
      for (const Edge& edge : edges) {
        graph.add_edge(ends[r][static_cast<std::size_t>(edge.from)],
                       begins[r][static_cast<std::size_t>(edge.to)], edge.lag, edge.kind);
      }
    }
    for (const auto& [from, to] : hub_edges) graph.add_edge(from, to);
    const auto schedule = run_schedule(graph);
    if (!schedule) {
      ADD_FAILURE() << to_string(schedule.error());
      return {};
    }
    RankTimes times{.end_us = start, .waiting_us = std::vector<double>(ranks(), 0)};
    const auto end = [&](TaskId task) { return schedule->end_us[static_cast<std::size_t>(task)]; };
    for (std::size_t r = 0; r < ranks(); ++r) {
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        times.end_us[r] = std::max(times.end_us[r], end(ends[r][i]));
        if (tasks[i].communicator < 0) continue;
        times.waiting_us[r] += end(ends[r][i]) - tasks[i].duration - end(begins[r][i]);
      }
    }
    return times;
  }
};

// Whole and half numbers: sums are exact whatever their order.
TEST(RankGrid, RandomJobsEqualCopiesOfTheGraphWithHubs) {
  std::mt19937 random(17);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  int waited = 0;
  for (int round = 0; round < 150; ++round) {
    Job job;
    const int ranks = 1 + below(6), count = 2 + below(20), lanes = 1 + below(3);
    for (int c = 0; c < 2; ++c) {
      job.communicators.emplace_back();
      for (int r = 0; r < ranks; ++r) job.communicators.back().push_back(below(3) - 1);
    }
    for (int r = 0; r < ranks; ++r) {
      job.start.push_back(below(30));
      job.slowdown.push_back(1 + below(3) / 2.0);
    }
    for (int i = 0; i < count; ++i) {
      // All collectives on lane 0, as on a communication stream; some others without a lane.
      const bool meets = below(4) == 0;
      job.tasks.push_back({meets ? 0 : below(lanes + 1) - 1, double(below(20)), double(below(4)),
                           meets ? below(2) : -1});
    }
    for (int i = 0; i < count; ++i) {
      const TaskId from = below(count - 1), to = from + 1 + below(count - 1 - from);
      job.edges.push_back(
          {from, to, double(below(15) - 5),
           below(4) == 0 ? TaskGraph::EdgeKind::kInferred : TaskGraph::EdgeKind::kCertain});
    }
    if (round % 2 == 0) std::shuffle(job.edges.begin(), job.edges.end(), random);
    const RankTimes grid = job.as_grid(), copies = job.as_copies();
    EXPECT_EQ(grid.end_us, copies.end_us) << "round " << round;
    EXPECT_EQ(grid.waiting_us, copies.waiting_us) << "round " << round;
    for (double us : grid.waiting_us) waited += us > 0;
  }
  EXPECT_GT(waited, 100);
}

TEST(RankGrid, InferredEdgesOfCyclesAreDropped) {
  TaskGraph graph;
  const TaskId a = graph.add_task(0, 2), b = graph.add_task(1, 3);
  graph.add_edge(a, b);
  graph.add_edge(b, a, 0, TaskGraph::EdgeKind::kInferred);
  EXPECT_EQ(run(RankGrid(graph, 2)).end_us, (std::vector<double>{5, 5}));
}

}  // namespace
}  // namespace perfmodel
