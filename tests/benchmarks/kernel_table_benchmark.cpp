// Rows of a table in, rows of prices out, on all cores, as in `kernels`. Items are rows per second
// of the clock; the time is the sum over all threads.

#include <benchmark/benchmark.h>

#include <fstream>
#include <random>

#include "inputs.hpp"
#include "kernels/price_kernel_table.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/detail/choose_kernel_models.hpp"

namespace perfmodel::benchmarks {
namespace {

constexpr int kTableRows = 100'000;

/// Products and vector kernels of three GPUs that were measured, in any order.
std::filesystem::path mixed_table() {
  const auto path = folder() / "kernels.csv";
  if (std::filesystem::exists(path)) return path;
  std::mt19937 random(7);
  const auto size = [&] { return 16 + random() % 8192; };
  constexpr const char* kGpus[] = {"a100-sxm-40gb", "h100-sxm-80gb", "v100-sxm2-32gb"};
  constexpr const char* kVectorOps[] = {"add", "relu", "softmax", "layer_norm"};
  std::ofstream out(path);
  out << "device,op,dtype,m,n,k,rows,cols\n";
  for (int i = 0; i < kTableRows; ++i) {
    out << kGpus[random() % 3];
    if (random() % 2) {
      out << ",gemm,fp32," << size() << ',' << size() << ',' << size() << ",,\n";
    } else {
      out << ',' << kVectorOps[random() % 4] << ",fp32,,,," << size() << ',' << size() << '\n';
    }
  }
  return path;
}

/// Products of one GPU, in bf16: tiles and trees that most rows of today's silicon ask for.
std::filesystem::path half_table() {
  const auto path = folder() / "half_kernels.csv";
  if (std::filesystem::exists(path)) return path;
  std::mt19937 random(7);
  const auto size = [&] { return 8 * (2 + random() % 1024); };
  std::ofstream out(path);
  out << "device,op,dtype,m,n,k\n";
  for (int i = 0; i < kTableRows; ++i) {
    out << "h100-sxm-80gb,gemm,bf16," << size() << ',' << size() << ',' << size() << '\n';
  }
  return path;
}

void kernels(benchmark::State& state, const std::filesystem::path& table, const char* models) {
  const auto data = value_of(find_data_folder());
  const auto chosen = value_of(choose_kernel_models(models));
  std::size_t bytes = 0;
  const PriceSink sink{.format = append_prices,
                       .write = [&](std::string_view text) -> Result<void> {
                         bytes += text.size();
                         return {};
                       }};
  for (auto _ : state) {
    value_of(price_kernel_table(table, {.gpu_folder = data / "gpus"}, chosen.models, sink));
  }
  benchmark::DoNotOptimize(bytes);
  state.SetItemsProcessed(state.iterations() * kTableRows);
}

void mixed_heuristic(benchmark::State& state) { kernels(state, mixed_table(), "heuristic"); }
void mixed_learned(benchmark::State& state) { kernels(state, mixed_table(), "learned"); }
void half_heuristic(benchmark::State& state) { kernels(state, half_table(), "heuristic"); }
void half_learned(benchmark::State& state) { kernels(state, half_table(), "learned"); }

void on_all_cores(benchmark::internal::Benchmark* benchmark) {
  benchmark->MeasureProcessCPUTime()->UseRealTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK(mixed_heuristic)->Name("kernels/mixed/heuristic")->Apply(on_all_cores);
BENCHMARK(mixed_learned)->Name("kernels/mixed/learned")->Apply(on_all_cores);
BENCHMARK(half_heuristic)->Name("kernels/bf16_products/heuristic")->Apply(on_all_cores);
BENCHMARK(half_learned)->Name("kernels/bf16_products/learned")->Apply(on_all_cores);

}  // namespace
}  // namespace perfmodel::benchmarks
