// Predictions of graphs that are in memory: what a scheduler pays per question.

#include <benchmark/benchmark.h>

#include "inputs.hpp"
#include "perfmodel/graph/read_execution_graph.hpp"
#include "perfmodel/predict.hpp"

namespace perfmodel::benchmarks {
namespace {

void predict_loop(benchmark::State& state, const ExecutionGraph& graph, const Gpu& device,
                  const OverheadTable& table, bool keep_ops) {
  PredictOptions options;
  options.keep_ops = keep_ops;
  for (auto _ : state) {
    benchmark::DoNotOptimize(value_of(predict(graph, device, table, options)).e2e_us);
  }
  state.SetItemsProcessed(state.iterations());
  state.counters["nodes"] = static_cast<double>(graph.nodes.size());
}

// Without and with the list of ops and the critical path.
void predict_built(benchmark::State& state) {
  const auto graph = value_of(build_dlrm(value_of(dlrm_preset("mlperf"))));
  predict_loop(state, graph, gpu("a100-sxm-40gb"), {}, state.range(0) != 0);
}
BENCHMARK(predict_built)
    ->Name("predict/mlperf")
    ->ArgName("ops")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);

void predict_scaling(benchmark::State& state) {
  const auto graph =
      value_of(build_dlrm(dlrm_with_tables(static_cast<std::size_t>(state.range(0)))));
  predict_loop(state, graph, gpu("a100-sxm-40gb"), {}, true);
  state.SetComplexityN(static_cast<std::int64_t>(graph.nodes.size()));
}
BENCHMARK(predict_scaling)
    ->Name("predict/tables")
    ->RangeMultiplier(4)
    ->Range(8, 512)
    ->Complexity(benchmark::oN)
    ->Unit(benchmark::kMillisecond);

// A recorded graph with the overheads and launch templates of its own trace.
void predict_recorded(benchmark::State& state, const std::filesystem::path& graph_file,
                      const std::filesystem::path& trace_file) {
  const auto graph = value_of(read_execution_graph(graph_file));
  const auto trace = value_of(read_trace(trace_file));
  const OverheadSource source{.trace = &trace, .graph = &graph};
  const auto table = value_of(extract_overheads({&source, 1}, {}));
  predict_loop(state, graph, gpu("v100-sxm2-32gb"), table, true);
}

void extract(benchmark::State& state, const std::filesystem::path& graph_file,
             const std::filesystem::path& trace_file) {
  const auto graph = value_of(read_execution_graph(graph_file));
  const auto trace = value_of(read_trace(trace_file));
  const OverheadSource source{.trace = &trace, .graph = &graph};
  for (auto _ : state) {
    benchmark::DoNotOptimize(value_of(extract_overheads({&source, 1}, {})).iterations);
  }
}

[[maybe_unused]] const bool kPublicPredictions = [] {
  const auto graph = public_file("traces/dlrm_v100_rank0of8_et.json.gz");
  const auto trace = public_file("traces/dlrm_v100_rank0of8_kineto.json.gz");
  if (graph && trace) {
    benchmark::RegisterBenchmark("predict/public_dlrm", predict_recorded, *graph, *trace)
        ->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark("overheads/public_dlrm", extract, *graph, *trace)
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace perfmodel::benchmarks
