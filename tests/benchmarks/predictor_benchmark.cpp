// Time of a scheduler per question: the prepared graph of a DLRM in another batch each time.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "inputs.hpp"
#include "perfmodel/predictor.hpp"

namespace perfmodel::benchmarks {
namespace {

constexpr std::int64_t kBatches = 512;

const Predictor& predictor() {
  static const Predictor loaded =
      value_of(Predictor::load({.gpus = {"a100-sxm-40gb", "h100-sxm-80gb"}}));
  return loaded;
}

const PreparedGraph& job() {
  static const PreparedGraph prepared =
      value_of(predictor().prepare(value_of(build_dlrm(value_of(dlrm_preset("mlperf"))))));
  return prepared;
}

std::int64_t batch_of(std::uint64_t question) {
  return 64 * (1 + static_cast<std::int64_t>(question % kBatches));
}

// The slowest of every hundred calls; in microseconds.
double percentile_99(std::vector<double>& latencies_us) {
  if (latencies_us.empty()) return 0;
  const auto at =
      latencies_us.begin() + static_cast<std::ptrdiff_t>(latencies_us.size() * 99 / 100);
  std::nth_element(latencies_us.begin(), at, latencies_us.end());
  return *at;
}

// Each thread walks through the batches from another place: no two calls in a row ask the same, no
// answer is used again; only the prices of kernels are remembered.
void ask(benchmark::State& state, AskOptions options) {
  using Clock = std::chrono::steady_clock;
  for (std::int64_t i = 0; i < kBatches; ++i) {  // warm
    options.batch = batch_of(static_cast<std::uint64_t>(i));
    value_of(predictor().predict(job(), "h100-sxm-80gb", options));
  }
  std::vector<double> latencies_us;
  latencies_us.reserve(std::size_t{1} << 20);
  auto question = static_cast<std::uint64_t>(state.thread_index()) * kBatches / 2;
  for (auto _ : state) {
    const auto begin = Clock::now();
    options.batch = batch_of(question++);
    benchmark::DoNotOptimize(value_of(predictor().predict(job(), "h100-sxm-80gb", options)).e2e_us);
    const std::chrono::duration<double, std::micro> took = Clock::now() - begin;
    if (latencies_us.size() < latencies_us.capacity()) latencies_us.push_back(took.count());
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["p99_us"] =
      benchmark::Counter(percentile_99(latencies_us), benchmark::Counter::kAvgThreads);
}

BENCHMARK_CAPTURE(ask, totals, AskOptions{})
    ->Name("predictor/mlperf/totals")
    ->UseRealTime()
    ->Threads(1)
    ->Threads(2)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(ask, times, AskOptions{.times_only = true})
    ->Name("predictor/mlperf/times_only")
    ->UseRealTime()
    ->Threads(1)
    ->Threads(2)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(ask, ops, AskOptions{.keep_ops = true})
    ->Name("predictor/mlperf/ops_and_path")
    ->UseRealTime()
    ->Threads(1)
    ->Threads(2)
    ->Unit(benchmark::kMicrosecond);

// Batches that are new each time: the models price every kernel.
void ask_new(benchmark::State& state) {
  static std::int64_t batch = 0;
  for (auto _ : state) {
    const AskOptions options{.batch = ++batch};
    benchmark::DoNotOptimize(value_of(predictor().predict(job(), "a100-sxm-40gb", options)).e2e_us);
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(ask_new)->Name("predictor/mlperf/new_prices")->Unit(benchmark::kMicrosecond);

void load(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(value_of(Predictor::load()).gpus().size());
}
BENCHMARK(load)->Name("predictor/load")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace perfmodel::benchmarks
