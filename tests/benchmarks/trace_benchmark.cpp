// Reading of Kineto traces, in bytes of JSON text per second.

#include <benchmark/benchmark.h>

#include "inputs.hpp"
#include "perfmodel/graph/trace.hpp"

namespace perfmodel::benchmarks {
namespace {

void read_trace_file(benchmark::State& state, const std::filesystem::path& file) {
  std::uint64_t bytes = 0;
  std::size_t events = 0;
  for (auto _ : state) {
    const Trace trace = value_of(read_trace(file));
    bytes = trace.text_bytes;
    events = trace.event_count;
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
  state.counters["events"] = static_cast<double>(events);
}

void read_made_up(benchmark::State& state, std::size_t megabytes) {
  read_trace_file(state, made_up_trace(megabytes));
}
BENCHMARK_CAPTURE(read_made_up, small, 1)
    ->Name("read_trace/made_up/small")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(read_made_up, large, 50)
    ->Name("read_trace/made_up/large")
    ->Unit(benchmark::kMillisecond);

[[maybe_unused]] const bool kPublicTraces = [] {
  if (const auto file = public_file("traces/resnet18_kineto.json.gz")) {
    benchmark::RegisterBenchmark("read_trace/public_resnet18_gz/large", read_trace_file, *file)
        ->Unit(benchmark::kMillisecond);
  }
  return true;
}();

}  // namespace
}  // namespace perfmodel::benchmarks
