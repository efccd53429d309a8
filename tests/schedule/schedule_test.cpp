#include "perfmodel/schedule/schedule.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

Schedule run(const TaskGraph& graph) {
  auto schedule = run_schedule(graph);
  if (!schedule) {
    ADD_FAILURE() << to_string(schedule.error());
    return {};
  }
  return std::move(*schedule);
}

double start(const Schedule& schedule, TaskId task) {
  return schedule.start_us[static_cast<std::size_t>(task)];
}
double end(const Schedule& schedule, TaskId task) {
  return schedule.end_us[static_cast<std::size_t>(task)];
}
TaskId bound_by(const Schedule& schedule, TaskId task) {
  return schedule.bound_by[static_cast<std::size_t>(task)];
}

TEST(Schedule, NoTasksTakeNoTime) {
  const Schedule schedule = run(TaskGraph{});
  EXPECT_TRUE(schedule.start_us.empty());
  EXPECT_EQ(schedule.makespan_us(), 0);
  EXPECT_EQ(busy_us(schedule, {}), 0);
}

TEST(Schedule, TasksOfOneLaneRunInTheOrderOfAdding) {
  TaskGraph graph;
  const TaskId a = graph.add_task(0, 5), b = graph.add_task(0, 1), c = graph.add_task(0, 2);
  const Schedule schedule = run(graph);
  EXPECT_EQ(start(schedule, a), 0);
  EXPECT_EQ(start(schedule, b), 5);
  EXPECT_EQ(start(schedule, c), 6);
  EXPECT_EQ(schedule.makespan_us(), 8);
  EXPECT_EQ(bound_by(schedule, a), -1);
  EXPECT_EQ(bound_by(schedule, b), a);
  EXPECT_EQ(bound_by(schedule, c), b);
}

TEST(Schedule, LanesRunSideBySide) {
  TaskGraph graph;
  graph.add_task(0, 5);
  const TaskId b = graph.add_task(3, 7);  // lanes may be left out
  EXPECT_EQ(graph.lanes(), 4);
  EXPECT_EQ(graph.last_on_lane(0), 0);
  EXPECT_EQ(graph.last_on_lane(1), -1);
  EXPECT_EQ(graph.last_on_lane(3), b);
  EXPECT_EQ(graph.last_on_lane(99), -1);
  const Schedule schedule = run(graph);
  EXPECT_EQ(start(schedule, b), 0);
  EXPECT_EQ(schedule.makespan_us(), 7);
}

TEST(Schedule, TheGapLiesBeforeATaskButNotBeforeTheFirstOfALane) {
  TaskGraph graph;
  const TaskId a = graph.add_task(0, 4, 1.5), b = graph.add_task(0, 2, 1.5);
  const Schedule schedule = run(graph);
  EXPECT_EQ(start(schedule, a), 0);
  EXPECT_EQ(start(schedule, b), 5.5);  // 4 + 1.5
  EXPECT_EQ(end(schedule, b), 7.5);
}

TEST(Schedule, AnEdgeHoldsATaskUntilItsPredecessorHasEndedPlusTheLag) {
  TaskGraph graph;
  const TaskId call = graph.add_task(0, 10);
  const TaskId kernel = graph.add_task(1, 3);
  graph.add_edge(call, kernel, 1.7);
  const Schedule schedule = run(graph);
  EXPECT_DOUBLE_EQ(start(schedule, kernel), 11.7);
  EXPECT_EQ(bound_by(schedule, kernel), call);
}

TEST(Schedule, ANegativeLagStartsATaskBeforeItsPredecessorEnds) {
  TaskGraph graph;
  const TaskId call = graph.add_task(0, 10);
  const TaskId kernel = graph.add_task(1, 3), next = graph.add_task(1, 1);
  graph.add_edge(call, kernel, -4);
  graph.add_edge(call, next, -20);  // before time 0: the lane decides
  const Schedule schedule = run(graph);
  EXPECT_EQ(start(schedule, kernel), 6);
  EXPECT_EQ(start(schedule, next), 9);
}

TEST(Schedule, NoTaskStartsBeforeTimeZero) {
  TaskGraph graph;
  const TaskId call = graph.add_task(0, 10);
  const TaskId kernel = graph.add_task(1, 3);
  graph.add_edge(call, kernel, -15);
  EXPECT_EQ(start(run(graph), kernel), 0);
}

TEST(Schedule, TheLatestOfLaneAndEdgesDecides) {
  // Lane free at 4 + 1 = 5; edges at 6 + 0 and 2 + 3.5 = 5.5.
  TaskGraph graph;
  const TaskId before = graph.add_task(0, 4);
  const TaskId six = graph.add_task(1, 6), two = graph.add_task(2, 2);
  const TaskId last = graph.add_task(0, 1, 1);
  graph.add_edge(six, last);
  graph.add_edge(two, last, 3.5);
  const Schedule schedule = run(graph);
  EXPECT_EQ(start(schedule, last), 6);
  EXPECT_EQ(bound_by(schedule, last), six);
  EXPECT_EQ(start(schedule, before), 0);
}

TEST(Schedule, AnEdgeFromNoTaskIsIgnored) {
  TaskGraph graph;
  const TaskId a = graph.add_task(0, 1);
  graph.add_edge(-1, a, 100);
  EXPECT_EQ(start(run(graph), a), 0);
}

TEST(Schedule, EdgesMayPointToTasksAddedEarlier) {
  // b was added before the a it waits for: a 0-3, b 3-5, and c behind b on its lane.
  TaskGraph graph;
  const TaskId b = graph.add_task(0, 2), c = graph.add_task(0, 4), a = graph.add_task(1, 3);
  graph.add_edge(a, b);
  const Schedule schedule = run(graph);
  EXPECT_EQ(start(schedule, a), 0);
  EXPECT_EQ(start(schedule, b), 3);
  EXPECT_EQ(start(schedule, c), 5);
  EXPECT_EQ(schedule.makespan_us(), 9);
}

TEST(Schedule, ACycleIsAnErrorThatNamesATaskAndItsOp) {
  TaskGraph graph;
  const TaskId a = graph.add_task(0, 1, 0, 41), b = graph.add_task(1, 1, 0, 42);
  graph.add_task(2, 1, 0, 43);
  graph.add_edge(a, b);
  graph.add_edge(b, a);
  const auto schedule = run_schedule(graph);
  ASSERT_FALSE(schedule);
  EXPECT_EQ(schedule.error().code, ErrorCode::kImpossible);
  EXPECT_NE(schedule.error().message.find("cycle"), std::string::npos);
  EXPECT_NE(schedule.error().message.find("op 41"), std::string::npos) << schedule.error().message;
}

TEST(Schedule, AnEdgeAgainstTheLaneOrderIsACycle) {
  TaskGraph graph;
  const TaskId first = graph.add_task(0, 1), second = graph.add_task(0, 1);
  graph.add_edge(second, first);
  EXPECT_FALSE(run_schedule(graph));
}

TEST(Schedule, ATaskThatWaitsForItselfIsACycle) {
  TaskGraph graph;
  const TaskId a = graph.add_task(0, 1);
  graph.add_edge(a, a);
  EXPECT_FALSE(run_schedule(graph));
}

TEST(Schedule, TheCriticalPathExplainsTheEndOfATask) {
  // Host: a 0-2, b 2-4, sync. Stream: k 2-12 behind a. The sync waits for k.
  TaskGraph graph;
  const TaskId a = graph.add_task(0, 2), b = graph.add_task(0, 2);
  const TaskId k = graph.add_task(1, 10), sync = graph.add_task(0, 1);
  graph.add_edge(a, k);
  graph.add_edge(k, sync);
  const Schedule schedule = run(graph);
  EXPECT_EQ(end(schedule, sync), 13);
  EXPECT_EQ(schedule.critical_path(sync), (std::vector<TaskId>{sync, k, a}));
  EXPECT_EQ(schedule.critical_path(b), (std::vector<TaskId>{b, a}));
}

TEST(Schedule, TagsComeBack) {
  TaskGraph graph;
  const TaskId a = graph.add_task(2, 1.25, 0, 7, 3);
  EXPECT_EQ(graph.op(a), 7);
  EXPECT_EQ(graph.term(a), 3);
  EXPECT_EQ(graph.lane(a), 2);
  EXPECT_EQ(graph.duration_us(a), 1.25);
  EXPECT_EQ(graph.size(), 1u);
}

TEST(BusyTime, IsTheUnionOfTheIntervals) {
  // 0-4 and 0-6 overlap, 6-7 touches, 20-21 stands alone: 7 + 1.
  TaskGraph graph;
  const TaskId a = graph.add_task(0, 4), b = graph.add_task(1, 6);
  const TaskId c = graph.add_task(1, 1), d = graph.add_task(2, 1), e = graph.add_task(3, 20);
  graph.add_edge(e, d);
  const Schedule schedule = run(graph);
  EXPECT_EQ(busy_us(schedule, std::vector{a, b, c, d}), 8);
  EXPECT_EQ(busy_us(schedule, std::vector{d, c, b, a}), 8);
  EXPECT_EQ(busy_us(schedule, std::vector{a}), 4);
  EXPECT_EQ(busy_us(schedule, std::vector{a, a}), 4);
}

// The rule of the header, relaxed until nothing moves any more.
std::vector<double> by_definition(const TaskGraph& graph,
                                  const std::vector<std::tuple<TaskId, TaskId, double>>& edges,
                                  const std::vector<double>& gaps) {
  std::vector<double> starts(graph.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    const auto raise = [&](std::size_t task, double to) {
      if (to > starts[task]) {
        starts[task] = to;
        moved = true;
      }
    };
    std::vector<int> previous(static_cast<std::size_t>(graph.lanes()), -1);
    for (std::size_t i = 0; i < graph.size(); ++i) {
      int& before = previous[static_cast<std::size_t>(graph.lane(static_cast<TaskId>(i)))];
      if (before >= 0) {
        raise(i, starts[static_cast<std::size_t>(before)] + graph.duration_us(before) + gaps[i]);
      }
      before = static_cast<int>(i);
    }
    for (const auto& [from, to, lag] : edges) {
      raise(static_cast<std::size_t>(to),
            starts[static_cast<std::size_t>(from)] + graph.duration_us(from) + lag);
    }
  }
  return starts;
}

// Whole numbers, so that sums are exact whatever their order.
TEST(Schedule, RandomGraphsFollowTheDefinitionOnBothPaths) {
  std::mt19937 random(7);
  const auto below = [&](int limit) {
    return static_cast<int>(random() % static_cast<unsigned>(limit));
  };
  for (int round = 0; round < 200; ++round) {
    TaskGraph forward;
    std::vector<double> gaps;
    const int tasks = 2 + below(60), lanes = 1 + below(5);
    for (int i = 0; i < tasks; ++i) {
      gaps.push_back(below(4));
      forward.add_task(below(lanes), below(20), gaps.back());
    }
    TaskGraph backward;  // the same tasks plus one that a backward edge leaves
    for (TaskId i = 0; i < tasks; ++i) {
      backward.add_task(forward.lane(i), forward.duration_us(i), gaps[static_cast<std::size_t>(i)]);
    }
    const TaskId extra = backward.add_task(lanes, 0);
    backward.add_edge(extra, 0, 0);  // binds nothing, but forces the topological path
    std::vector<std::tuple<TaskId, TaskId, double>> edges;
    for (int i = 0; i < 2 * tasks; ++i) {
      const TaskId from = below(tasks - 1), to = from + 1 + below(tasks - 1 - from);
      const double lag = below(15) - 5;
      edges.emplace_back(from, to, lag);
      forward.add_edge(from, to, lag);
      backward.add_edge(from, to, lag);
    }
    const auto wanted = by_definition(forward, edges, gaps);
    const Schedule fast = run(forward), sorted = run(backward);
    EXPECT_EQ(fast.start_us, wanted) << "round " << round;
    auto starts = sorted.start_us;
    starts.pop_back();
    EXPECT_EQ(starts, wanted) << "round " << round;
    // What bounds a task explains its start: the bound's end plus its gap or one of its lags.
    for (TaskId task = 0; task < tasks; ++task) {
      const TaskId bound = bound_by(fast, task);
      if (bound < 0 || start(fast, task) == 0) continue;
      bool explained = forward.lane(bound) == forward.lane(task) &&
                       end(fast, bound) + gaps[static_cast<std::size_t>(task)] == start(fast, task);
      for (const auto& [from, to, lag] : edges) {
        explained |= from == bound && to == task && end(fast, from) + lag == start(fast, task);
      }
      EXPECT_TRUE(explained) << "round " << round << ", task " << task;
    }
  }
}

// A chain over two lanes with an edge at every step: task i starts at i, whatever the length. A
// quadratic pass over a million tasks would not come to an end.
TEST(Schedule, AMillionTasksAreOneLinearPass) {
  constexpr TaskId kTasks = 1'000'000;
  for (const bool backward : {false, true}) {
    TaskGraph graph;
    graph.reserve(kTasks);
    for (TaskId i = 0; i < kTasks; ++i) {
      graph.add_task(i % 2, 1);
      if (i > 0) graph.add_edge(i - 1, i);
    }
    if (backward) graph.add_edge(graph.add_task(2, 0), 0);
    const Schedule schedule = run(graph);
    EXPECT_EQ(start(schedule, kTasks - 1), kTasks - 1);
    EXPECT_EQ(schedule.makespan_us(), kTasks);
    EXPECT_EQ(schedule.critical_path(kTasks - 1).size(),
              static_cast<std::size_t>(kTasks) + backward);
  }
}

}  // namespace
}  // namespace perfmodel
