// Time of a scheduler per layout once its layers are priced, and of a whole search.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "inputs.hpp"
#include "perfmodel/detail/decoder_models.hpp"
#include "perfmodel/layout.hpp"
#include "serve/service.hpp"

namespace perfmodel::benchmarks {
namespace {

const Predictor& layout_predictor() {
  static const Predictor loaded = value_of(Predictor::load({.gpus = {"h100-sxm-80gb"}}));
  return loaded;
}

LayoutPricer fresh_pricer() {
  return value_of(LayoutPricer::make(layout_predictor(), {.gpu = "h100-sxm-80gb"}));
}

LayoutJob llama_job(std::int64_t global_batch) {
  const NamedDecoder named = value_of(find_decoder("llama3-70b"));
  LayoutJob job{.model = named.model};
  job.sequence = 8192;
  job.global_batch = global_batch;
  return job;
}

// Every layout that a search of 1,024 GPUs looks at, in turn.
std::vector<ParallelLayout> layouts_of(std::int64_t gpus, std::int64_t global_batch) {
  std::vector<ParallelLayout> found;
  for (std::int64_t tp = 1; tp <= 8; tp *= 2) {
    for (std::int64_t pp = 1; pp <= 16; pp *= 2) {
      const std::int64_t dp = gpus / tp / pp;
      for (std::int64_t micro_batch = 1; dp * micro_batch <= global_batch; micro_batch *= 2) {
        for (const Sharding zero : {Sharding::kNone, Sharding::kZero1, Sharding::kZero3}) {
          if (zero == Sharding::kZero3 && pp > 1) continue;
          for (const LayoutRecompute recompute : {LayoutRecompute::kNone, LayoutRecompute::kFull}) {
            ParallelLayout layout;
            layout.dp = dp;
            layout.tp = tp;
            layout.pp = pp;
            layout.micro_batch = micro_batch;
            layout.zero = zero;
            layout.recompute = recompute;
            layout.sequence_parallel = tp > 1;
            found.push_back(layout);
          }
        }
      }
    }
  }
  return found;
}

// items_per_second is layouts per second; no two in a row are the same.
void price_layouts(benchmark::State& state) {
  const LayoutPricer pricer = fresh_pricer();
  const LayoutJob job = llama_job(2048);
  const std::vector<ParallelLayout> layouts = layouts_of(1024, job.global_batch);
  for (const ParallelLayout& layout : layouts) value_of(pricer.predict(job, layout));  // warm
  std::size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(value_of(pricer.predict(job, layouts[next])).step_ms);
    next = (next + 1) % layouts.size();
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(price_layouts)->Name("layout/llama3-70b/priced_layers")->Unit(benchmark::kMicrosecond);

// The same question as a line of a server's client: read, answered and written.
void serve_layouts(benchmark::State& state) {
  serve::Service service(layout_predictor(), {});
  const auto line = [](std::int64_t tp) {
    return "{\"op\":\"layout\",\"gpu\":\"h100-sxm-80gb\",\"model\":\"llama3-70b\","
           "\"global_batch\":2048,\"world\":1024,\"pp\":4,\"tp\":" +
           std::to_string(tp) + "}";
  };
  for (std::int64_t tp = 1; tp <= 8; tp *= 2) service.answer(line(tp), {});  // warm
  std::int64_t tp = 1;
  for (auto _ : state) {
    benchmark::DoNotOptimize(service.answer(line(tp), {}).data());
    tp = tp == 8 ? 1 : 2 * tp;
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(serve_layouts)->Name("layout/llama3-70b/served")->Unit(benchmark::kMicrosecond);

// From nothing: no layer is priced before.
void search_layouts(benchmark::State& state) {
  const std::int64_t gpus = state.range(0);
  std::int64_t considered = 0;
  for (auto _ : state) {
    const LayoutRanking ranking = value_of(rank_layouts(fresh_pricer(), llama_job(2 * gpus), gpus));
    considered += ranking.considered;
    benchmark::DoNotOptimize(ranking.best.data());
  }
  state.SetItemsProcessed(considered);
}
BENCHMARK(search_layouts)
    ->Name("layout/llama3-70b/search")
    ->Arg(64)
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);
BENCHMARK(search_layouts)
    ->Name("layout/llama3-70b/search/large")
    ->Arg(1024)
    ->Arg(16384)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace perfmodel::benchmarks
