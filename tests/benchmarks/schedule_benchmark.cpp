// The longest-path pass alone, on graphs shaped like replays.

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
    // Kernels have odd numbers, two apart; one to three before this one is on another stream.
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

}  // namespace
}  // namespace perfmodel::benchmarks
