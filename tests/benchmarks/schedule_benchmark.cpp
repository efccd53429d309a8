// The longest-path pass alone, on graphs shaped like replays, and ranks side by side.

#include <benchmark/benchmark.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <random>
#include <string>

#include "inputs.hpp"
#include "perfmodel/detail/schedule.hpp"
#include "rank_grid.hpp"

namespace perfmodel::benchmarks {
namespace {

using TaskId = TaskGraph::TaskId;
using Seconds = std::chrono::duration<double>;

enum class EdgeOrder {
  kSorted,    // forward, in the order of their targets: one pass front to back
  kShuffled,  // forward, in no order: rows by target are made first
  kBackward,  // in no order, and one points back: a topological order is found too
};

// A host lane whose calls launch kernels on four streams; every tenth kernel waits for a recent one
// of another stream.
TaskGraph replay_like(std::size_t tasks, EdgeOrder order) {
  struct Edge {
    TaskId from, to;
    double lag_us;
  };
  TaskGraph graph;
  graph.reserve(tasks);
  std::mt19937 random(1);
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < tasks / 2; ++i) {
    const auto stream = static_cast<std::int32_t>(i % 4);
    const TaskId call = graph.add_task(0, 3, 0.5), kernel = graph.add_task(1 + stream, 7, 1);
    edges.push_back({call, kernel, 1.5});
    // Kernels have odd numbers, two apart; one to three before this one lies on another stream.
    if (i >= 4 && random() % 10 == 0) {
      edges.push_back({kernel - 2 * static_cast<TaskId>(1 + random() % 3), kernel, 0.5});
    }
  }
  if (order != EdgeOrder::kSorted) std::shuffle(edges.begin(), edges.end(), random);
  for (const Edge& edge : edges) graph.add_edge(edge.from, edge.to, edge.lag_us);
  if (order == EdgeOrder::kBackward) graph.add_edge(graph.add_task(5, 0), 0);
  return graph;
}

// Time against size over a series: the slope of a line through the logarithms. 1 is linear.
double growth_exponent(const std::map<double, double>& seconds_by_size) {
  double x = 0, y = 0, xx = 0, xy = 0;
  const auto count = static_cast<double>(seconds_by_size.size());
  for (const auto& [size, seconds] : seconds_by_size) {
    const double a = std::log(size), b = std::log(seconds);
    x += a;
    y += b;
    xx += a * a;
    xy += a * b;
  }
  return (count * xy - x * y) / (count * xx - x * x);
}

// Adds this size's fastest run to its series; from the second size on, "exponent" is the growth up
// to here.
void report_growth(benchmark::State& state, const std::string& series, double size,
                   Seconds fastest) {
  static std::map<std::string, std::map<double, double>> all;
  auto& seconds = all[series];
  seconds[size] = fastest.count();
  if (seconds.size() > 1) state.counters["exponent"] = growth_exponent(seconds);
}

double peak_memory_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

template <class Run>
Seconds fastest_of(benchmark::State& state, const Run& run) {
  Seconds fastest = Seconds::max();
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    run();
    fastest = std::min(fastest, Seconds(std::chrono::steady_clock::now() - begin));
  }
  return fastest;
}

void schedule(benchmark::State& state, EdgeOrder order, const std::string& series) {
  const auto tasks = static_cast<std::size_t>(state.range(0));
  const TaskGraph graph = replay_like(tasks, order);
  Schedule made = value_of(run_schedule(graph));  // its memory is used again
  const Seconds fastest = fastest_of(state, [&] {
    if (const auto done = run_schedule(graph, made); !done) stop(done.error());
    benchmark::DoNotOptimize(made.end_us.data());
  });
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(tasks));
  state.counters["peak_mib"] = peak_memory_mib();
  report_growth(state, series, static_cast<double>(tasks), fastest);
}

// Graph and schedule take about 60 bytes per task: 2,000 tasks stay within a small L2 cache. Memory
// is the peak of the whole program up to here.
[[maybe_unused]] const bool kReplayLike = [] {
  const std::pair<const char*, EdgeOrder> orders[] = {{"sorted", EdgeOrder::kSorted},
                                                      {"shuffled", EdgeOrder::kShuffled},
                                                      {"backward", EdgeOrder::kBackward}};
  for (const auto& [name, order] : orders) {
    const std::string series = std::string("schedule/") + name;
    benchmark::RegisterBenchmark(series.c_str(), schedule, order, series)
        ->Arg(2'000)
        ->Arg(10'000)
        ->Arg(100'000)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark((series + "/large").c_str(), schedule, order, series)
        ->Arg(1'000'000)
        ->Arg(10'000'000)
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

// Ranks in rows of eight and columns across them; a row's all-to-all every 50 tasks, a column's
// all-reduce every 100. Every rank starts and runs a little differently.
void rank_grid(benchmark::State& state, const std::string& series) {
  const auto ranks = static_cast<std::size_t>(state.range(0));
  const auto tasks = static_cast<std::size_t>(state.range(1));
  const TaskGraph graph = replay_like(tasks, EdgeOrder::kSorted);
  std::vector<std::int32_t> row, column;
  for (std::size_t r = 0; r < ranks; ++r) {
    row.push_back(static_cast<std::int32_t>(r / 8));
    column.push_back(static_cast<std::int32_t>(r % 8));
  }
  RankTimes times;
  const Seconds fastest = fastest_of(state, [&] {
    RankGrid grid(graph, ranks);
    const std::size_t rows = grid.add_communicator(row), columns = grid.add_communicator(column);
    for (std::size_t i = 1; i < graph.size(); i += 50) {
      grid.add_collective(static_cast<TaskId>(i), i % 100 == 1 ? rows : columns);
    }
    for (std::size_t r = 0; r < ranks; ++r) {
      grid.set_start_us(r, static_cast<double>(r % 13));
      grid.set_slowdown(r, 1 + 0.001 * static_cast<double>(r % 7));
    }
    times = value_of(grid.run());
    benchmark::DoNotOptimize(times.end_us.data());
  });
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(ranks * tasks));
  state.counters["peak_mib"] = peak_memory_mib();
  report_growth(state, series, static_cast<double>(ranks), fastest);
}

[[maybe_unused]] const bool kRankGrid = [] {
  const std::string series = "rank_grid";
  benchmark::RegisterBenchmark("rank_grid", rank_grid, series)
      ->ArgNames({"ranks", "tasks"})
      ->Args({16, 5'000})
      ->Args({64, 5'000})
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("rank_grid/large", rank_grid, series)
      ->ArgNames({"ranks", "tasks"})
      ->Args({256, 5'000})
      ->Args({1'024, 5'000})
      ->Unit(benchmark::kMillisecond);
  return true;
}();

}  // namespace
}  // namespace perfmodel::benchmarks
