// Collectives by size: 10,000 prices a second in process are a tenth of a millisecond each.

#include <benchmark/benchmark.h>

#include "inputs.hpp"
#include "perfmodel/collective.hpp"

namespace perfmodel::benchmarks {
namespace {

void collective_prices(benchmark::State& state) {
  const Topology topology = topology_for(gpu("h100-sxm-80gb"));
  CollectiveQuestion question{.world = static_cast<int>(state.range(0))};
  for (auto _ : state) {
    for (double bytes = 1 << 10; bytes <= 1 << 30; bytes *= 2) {
      question.bytes = {bytes};
      benchmark::DoNotOptimize(answer_collective(topology, question));
    }
  }
  state.SetItemsProcessed(state.iterations() * 21);
}
BENCHMARK(collective_prices)->Name("collective/prices")->Arg(8)->Arg(16)->Arg(1024);

}  // namespace
}  // namespace perfmodel::benchmarks
