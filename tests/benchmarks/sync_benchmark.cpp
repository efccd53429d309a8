// Synchronisation schemes, and jobs whose ranks differ.
#include <benchmark/benchmark.h>

#include <cstdint>

#include "inputs.hpp"
#include "perfmodel/graph/build_recommenders.hpp"
#include "perfmodel/graph/rewrites/training.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/sync/run_sync.hpp"
#include "predict/mixed_job.hpp"

namespace perfmodel::benchmarks {
namespace {

// 64 workers of four paces with 1,000 commits each: all six schemes within a second are wanted.
void run_schemes(benchmark::State& state) {
  sync::SyncJob job;
  for (int i = 0; i < 64; ++i) {
    job.workers.push_back({.name = {},
                           .step_us = 1000.0 + 500 * (i % 4),
                           .commit_us = 100,
                           .straggler = value_of(sync::Straggler::parse("lognormal:0.2"))});
  }
  for (auto _ : state) {
    for (std::size_t i = 0; i < sync::scheme_names().size(); ++i) {
      const sync::SchemeSettings settings{
          .scheme = static_cast<sync::Scheme>(i), .tau = 10, .staleness = 3, .period_us = 1e5};
      benchmark::DoNotOptimize(
          value_of(sync::run_sync(job, settings, {.commits = 64'000})).time_us);
    }
  }
}
BENCHMARK(run_schemes)->Name("sync/64_workers/all_schemes")->Unit(benchmark::kMillisecond);

// Steps of a DLRM on eight ranks of two kinds that are drawn with stragglers.
void draw_steps(benchmark::State& state) {
  constexpr std::size_t kDraws = 1000;
  const auto table = value_of(read_overheads(std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data" /
                                             "overheads" / "reference.json"));
  const ExecutionGraph graph = value_of(rewrite_data_parallel(
      value_of(build_dlrm(value_of(dlrm_preset("mlperf")))), {.world_size = 8}));
  std::vector<PlacedRank> ranks;
  for (const char* name : {"h100-sxm-80gb", "a100-sxm-80gb"}) {
    ranks.push_back({.rank = {.graph = &graph, .table = &table}, .gpu = &gpu(name), .count = 4});
  }
  const sync::StragglerDraws draws{
      .straggler = value_of(sync::Straggler::parse("lognormal:0.2")), .seed = 1, .draws = kDraws};
  for (auto _ : state) {
    benchmark::DoNotOptimize(value_of(sync::predict_mixed_job(ranks, {}, draws)).drawn->p95_us);
  }
  state.counters["draws/s"] =
      benchmark::Counter(static_cast<double>(kDraws * static_cast<std::size_t>(state.iterations())),
                         benchmark::Counter::kIsRate);
}
BENCHMARK(draw_steps)->Name("sync/mlperf/1000_draws")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace perfmodel::benchmarks
