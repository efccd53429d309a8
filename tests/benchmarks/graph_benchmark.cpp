// Building, writing and reading execution graphs.

#include <benchmark/benchmark.h>

#include "inputs.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/graph/write_execution_graph.hpp"

namespace perfmodel::benchmarks {
namespace {

void report_size(benchmark::State& state, std::size_t bytes, std::size_t nodes) {
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
  state.counters["nodes"] = static_cast<double>(nodes);
}

void read_graph_file(benchmark::State& state, const std::filesystem::path& file) {
  std::size_t nodes = 0;
  for (auto _ : state) nodes = value_of(read_execution_graph(file)).nodes.size();
  report_size(state, std::filesystem::file_size(file), nodes);
}

void read_graph_built(benchmark::State& state) {
  read_graph_file(state, built_graph_file("mlperf"));
}
BENCHMARK(read_graph_built)->Name("read_graph/mlperf")->Unit(benchmark::kMillisecond);

// Bytes count the compressed file.
[[maybe_unused]] const bool kPublicGraphs = [] {
  if (const auto file = public_file("traces/dlrm_v100_rank0of8_et.json.gz")) {
    benchmark::RegisterBenchmark("read_graph/public_dlrm_gz", read_graph_file, *file)
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

void build_graph(benchmark::State& state) {
  const DlrmConfig config = value_of(dlrm_preset("mlperf"));
  for (auto _ : state) benchmark::DoNotOptimize(value_of(build_dlrm(config)).nodes.data());
}
BENCHMARK(build_graph)->Name("build_graph/mlperf")->Unit(benchmark::kMillisecond);

// Linear: twice the nodes take twice the time.
void read_graph_scaling(benchmark::State& state) {
  const auto tables = static_cast<std::size_t>(state.range(0));
  const auto file = folder() / ("tables_" + std::to_string(tables) + ".json");
  const auto graph = value_of(build_dlrm(dlrm_with_tables(tables)));
  if (const auto done = write_execution_graph(graph, file); !done) stop(done.error());
  for (auto _ : state) benchmark::DoNotOptimize(value_of(read_execution_graph(file)).nodes.data());
  report_size(state, std::filesystem::file_size(file), graph.nodes.size());
  state.SetComplexityN(static_cast<std::int64_t>(graph.nodes.size()));
}
BENCHMARK(read_graph_scaling)
    ->Name("read_graph/tables")
    ->RangeMultiplier(4)
    ->Range(8, 512)
    ->Complexity(benchmark::oN)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace perfmodel::benchmarks
