#include "perfmodel/detail/critical_path.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

namespace perfmodel {
namespace critical_path_test {

using TaskId = TaskGraph::TaskId;

// Steps are told apart by the tasks' op tag, categories by their term tag.
TaskNames names_of(const TaskGraph& graph) {
  return {.key = [&](TaskId task) { return static_cast<std::uint64_t>(graph.op(task)); },
          .op = [&](TaskId task) { return "op" + std::to_string(graph.op(task)); },
          .category = [&](TaskId task) { return "c" + std::to_string(graph.term(task)); }};
}

Schedule schedule_of(const TaskGraph& graph) {
  auto schedule = run_schedule(graph);
  if (!schedule) {
    ADD_FAILURE() << to_string(schedule.error());
    return {};
  }
  return std::move(*schedule);
}

CriticalPath path_of(const TaskGraph& graph, TaskId first, TaskId last,
                     const CriticalPathOptions& options = {}) {
  auto path = critical_path(graph, schedule_of(graph), first, last, names_of(graph), options);
  if (!path) {
    ADD_FAILURE() << to_string(path.error());
    return {};
  }
  return std::move(*path);
}

const CriticalPath::Step* find(const std::vector<CriticalPath::Step>& steps,
                               const std::string& op) {
  for (const auto& step : steps) {
    if (step.op == op) return &step;
  }
  return nullptr;
}

// Host: call (op 0) 0-2, other (op 1) 2-5, sync (op 3) 14.5-15. Stream: kernel (op 2) 4-14, after
// the call plus a latency of 2. The sync waits for the kernel plus 0.5.
struct Launch {
  TaskGraph graph;
  TaskId call, other, kernel, sync;

  Launch() {
    call = graph.add_task(0, 2, 0, 0, 0);
    other = graph.add_task(0, 3, 0, 1, 0);
    kernel = graph.add_task(1, 10, 0, 2, 1);
    sync = graph.add_task(0, 0.5, 0, 3, 0);
    graph.add_edge(call, kernel, 2);
    graph.add_edge(kernel, sync, 0.5);
  }
};

TEST(CriticalPath, NamesEachStepWithTheLatencyBeforeIt) {
  const Launch launch;
  const CriticalPath path = path_of(launch.graph, -1, launch.sync);
  EXPECT_EQ(path.step_us, 15);
  ASSERT_EQ(path.steps.size(), 3u);
  EXPECT_EQ(path.steps[0].op, "op2");
  EXPECT_EQ(path.steps[0].category, "c1");
  EXPECT_EQ(path.steps[0].us, 12);  // latency 2 + 10
  EXPECT_EQ(path.steps[0].own_us, 10);
  EXPECT_EQ(path.steps[0].count, 1u);
  EXPECT_EQ(path.steps[0].slack_us, 0);
  EXPECT_EQ(path.steps[1].op, "op0");
  EXPECT_EQ(path.steps[1].us, 2);
  EXPECT_EQ(path.steps[2].op, "op3");
  EXPECT_EQ(path.steps[2].us, 1);
  ASSERT_EQ(path.shares.size(), 2u);
  EXPECT_EQ(path.shares[0].category, "c1");
  EXPECT_EQ(path.shares[0].us, 12);
  EXPECT_EQ(path.shares[1].us, 3);
}

TEST(CriticalPath, WhatLiesBesideThePathHasSlack) {
  // The host is through at 5 and its sync could begin at 14.5: 9.5 to spare.
  const Launch launch;
  const CriticalPath path = path_of(launch.graph, -1, launch.sync);
  ASSERT_EQ(path.off_path.size(), 1u);
  EXPECT_EQ(path.off_path[0].op, "op1");
  EXPECT_EQ(path.off_path[0].own_us, 3);
  EXPECT_EQ(path.off_path[0].us, 0);
  EXPECT_EQ(path.off_path[0].count, 0u);
  EXPECT_EQ(path.off_path[0].slack_us, 9.5);
}

TEST(CriticalPath, StepIfFreeIsTheStepWithoutItsTasks) {
  const Launch launch;
  const CriticalPath path = path_of(launch.graph, -1, launch.sync);
  // Kernel free: it ends at 4, the host at 5 holds the sync: 5 + 0.5.
  EXPECT_EQ(find(path.steps, "op2")->step_if_free_us, 5.5);
  EXPECT_EQ(find(path.steps, "op0")->step_if_free_us, 13);
  EXPECT_EQ(find(path.steps, "op3")->step_if_free_us, 14.5);
  const CriticalPath one = path_of(launch.graph, -1, launch.sync, {.what_if = 1});
  EXPECT_EQ(one.steps[0].step_if_free_us, 5.5);
  EXPECT_EQ(one.steps[1].step_if_free_us, -1);  // not asked
}

TEST(CriticalPath, StepIfFreeFreesTasksOutsideOfTheWindowToo) {
  // Two steps of compute 10 (op 0) and wait 1 (op 1); the window is the second one.
  TaskGraph graph;
  graph.add_task(0, 10, 0, 0);
  const TaskId first = graph.add_task(0, 1, 0, 1);
  graph.add_task(0, 10, 0, 0);
  const TaskId last = graph.add_task(0, 1, 0, 1);
  const CriticalPath path = path_of(graph, first, last);
  EXPECT_EQ(path.step_us, 11);
  EXPECT_EQ(find(path.steps, "op0")->step_if_free_us, 1);
  EXPECT_EQ(find(path.steps, "op0")->us, 10);
  EXPECT_EQ(find(path.steps, "op0")->count, 1u);
}

// Op 0 of rank 0 and op 10 of rank 1 are one op of the program; so are 1 and 11, 2 and 12. Terms: 0
// host, 1 device. Both ranks meet before the last task.
TEST(CriticalPath, StepIfFreeFreesTheOpOnEveryRank) {
  TaskGraph graph;
  const TaskId meeting = graph.add_task(TaskGraph::kNoLane, 0, 0, 99);
  TaskId last = -1;
  for (int rank = 0; rank < 2; ++rank) {
    const int ops = 10 * rank;
    const TaskId host = graph.add_task(2 * rank, 10 - rank, 0, ops, 0);
    graph.add_task(2 * rank, 5, 0, ops + 1, 0);
    const TaskId kernel = graph.add_task(2 * rank + 1, 2, 0, ops, 1);
    const TaskId call = graph.add_task(2 * rank, 1, 0, ops + 2, 0);
    graph.add_edge(host, kernel);
    graph.add_edge(call, meeting);
    if (rank == 0) last = graph.add_task(0, 3, 0, 3, 0);
  }
  graph.add_edge(meeting, last);
  TaskNames names = names_of(graph);
  names.key = [&](TaskId task) {
    return static_cast<std::uint64_t>(graph.op(task)) << 8 |
           static_cast<std::uint64_t>(graph.term(task));
  };
  const auto path_with = [&] {
    auto path = critical_path(graph, schedule_of(graph), -1, last, names);
    EXPECT_TRUE(path);
    return path ? std::move(*path) : CriticalPath{};
  };
  EXPECT_EQ(path_with().step_us, 19);
  EXPECT_EQ(find(path_with().steps, "op0")->step_if_free_us, 18);  // rank 1 holds it up
  names.op_key = [&](TaskId task) { return static_cast<std::uint64_t>(graph.op(task) % 10); };
  EXPECT_EQ(find(path_with().steps, "op0")->step_if_free_us, 9);
  EXPECT_EQ(find(path_with().steps, "op1")->step_if_free_us, 14);
}

TEST(CriticalPath, TheWindowCutsTheTaskThatReachesIntoIt) {
  // A kernel from 0 to 20; the window begins at 8 on the host.
  TaskGraph graph;
  const TaskId first = graph.add_task(0, 8, 0, 0);
  const TaskId kernel = graph.add_task(1, 20, 0, 1), last = graph.add_task(0, 1, 0, 2);
  graph.add_edge(kernel, last);
  const CriticalPath path = path_of(graph, first, last);
  EXPECT_EQ(path.step_us, 13);
  EXPECT_EQ(find(path.steps, "op1")->us, 12);
  EXPECT_EQ(find(path.steps, "op1")->own_us, 20);
  EXPECT_EQ(find(path.steps, "op0"), nullptr);
}

TEST(CriticalPath, ATaskWithoutDurationOnThePathHasNoSlack) {
  // A hub that is reached 5 us after its predecessor.
  TaskGraph graph;
  const TaskId before = graph.add_task(0, 1, 0, 0);
  const TaskId hub = graph.add_task(TaskGraph::kNoLane, 0, 0, 1), last = graph.add_task(1, 1, 0, 2);
  graph.add_edge(before, hub, 5);
  graph.add_edge(hub, last);
  const CriticalPath path = path_of(graph, -1, last);
  const auto* step = find(path.steps, "op1");
  ASSERT_NE(step, nullptr);
  EXPECT_EQ(step->us, 5);
  EXPECT_EQ(step->own_us, 0);
  EXPECT_EQ(step->slack_us, 0);
}

// A small kernel begins while a big one of another stream drains, 30 before its end at 100.
TEST(CriticalPath, ATaskThatOverlapsWhatBindsItIsNotCountedTwice) {
  TaskGraph graph;
  const TaskId big = graph.add_task(0, 100, 0, 0, 0);
  const TaskId small = graph.add_task(1, 5, 0, 1, 0);
  const TaskId host = graph.add_task(2, 10, 0, 2, 1);
  graph.add_edge(big, small, -30);
  graph.add_edge(small, host);
  const CriticalPath path = path_of(graph, -1, host);
  EXPECT_EQ(path.step_us, 85);
  EXPECT_EQ(find(path.steps, "op0")->us, 75);
  EXPECT_EQ(find(path.steps, "op1")->us, 0);
  EXPECT_EQ(find(path.steps, "op2")->us, 10);
}

TEST(CriticalPath, AStepMayBeginWithTheStartOfATask) {
  TaskGraph graph;
  const TaskId line = graph.add_task(TaskGraph::kNoLane, 0);
  const TaskId first = graph.add_task(0, 10, 0, 0, 0), last = graph.add_task(0, 5, 0, 1, 0);
  graph.add_edge(line, first, 1000);
  const CriticalPath path = path_of(graph, first, last, {.from_start = true});
  EXPECT_EQ(path.step_us, 15);
  EXPECT_EQ(find(path.steps, "op0")->us, 10);
  EXPECT_EQ(find(path.steps, "op1")->step_if_free_us, 10);
}

TEST(CriticalPath, OffPathKeepsTheLongest) {
  TaskGraph graph;
  for (int lane = 0; lane < 5; ++lane) graph.add_task(lane, 1 + lane, 0, lane);
  const TaskId last = graph.add_task(9, 100, 0, 9);
  const CriticalPath path = path_of(graph, -1, last, {.off_path = 2});
  ASSERT_EQ(path.off_path.size(), 2u);
  EXPECT_EQ(path.off_path[0].op, "op4");
  EXPECT_EQ(path.off_path[1].op, "op3");
  EXPECT_EQ(path.off_path[0].slack_us, std::numeric_limits<double>::infinity());
}

TEST(CriticalPath, ACycleIsAnError) {
  TaskGraph graph;
  const TaskId a = graph.add_task(0, 1), b = graph.add_task(1, 1);
  Schedule schedule = schedule_of(graph);
  graph.add_edge(a, b);
  graph.add_edge(b, a);
  EXPECT_FALSE(critical_path(graph, schedule, -1, b, names_of(graph)));
}

// Whole numbers. The sums hold whatever the graph, negative lags included.
TEST(CriticalPath, SharesAndStepsAddUpToTheStepOnRandomGraphs) {
  std::mt19937 random(23);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  for (int round = 0; round < 300; ++round) {
    TaskGraph graph;
    const int count = 2 + below(40), lanes = 1 + below(4);
    for (int i = 0; i < count; ++i) {
      graph.add_task(below(lanes + 1) - 1, below(20), below(3), below(6), below(3));
    }
    for (int i = 0; i < 2 * count; ++i) {
      const TaskId from = below(count - 1), to = from + 1 + below(count - 1 - from);
      graph.add_edge(from, to, below(15) - 5);
    }
    const Schedule schedule = schedule_of(graph);
    const TaskId last = static_cast<TaskId>(count - 1);
    TaskId first = below(count) - 1;
    const auto end = [&](TaskId task) {
      return task < 0 ? 0 : schedule.end_us[static_cast<std::size_t>(task)];
    };
    if (end(first) > end(last)) first = -1;
    const CriticalPath path = path_of(graph, first, last);
    EXPECT_EQ(path.step_us, end(last) - end(first)) << "round " << round;
    double shares = 0, steps = 0;
    for (const auto& share : path.shares) shares += share.us;
    for (const auto& step : path.steps) steps += step.us;
    EXPECT_EQ(shares, path.step_us) << "round " << round;
    EXPECT_EQ(steps, path.step_us) << "round " << round;
    for (const auto& step : path.steps) {
      TaskGraph free = graph;
      for (TaskId task = 0; task < count; ++task) {
        if ("op" + std::to_string(graph.op(task)) == step.op) free.set_duration_us(task, 0);
      }
      const Schedule again = schedule_of(free);
      const double begin = first < 0 ? 0 : again.end_us[static_cast<std::size_t>(first)];
      EXPECT_EQ(step.step_if_free_us, again.end_us[static_cast<std::size_t>(last)] - begin)
          << "round " << round << ", " << step.op;
      EXPECT_EQ(step.slack_us, 0) << "round " << round;
    }
  }
}

}  // namespace critical_path_test
}  // namespace perfmodel
