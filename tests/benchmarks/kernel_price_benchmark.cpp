// Pricing kernels: heuristics, learned models, and what a cache saves. Items are prices.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>

#include "inputs.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/predictors/detail/learned_models.hpp"
#include "perfmodel/predictors/detail/price_cache.hpp"
#include "predictors/kernel_mix.hpp"
#include "price/learned/model_file.hpp"

namespace perfmodel::benchmarks {
namespace {

using test_support::kernel_mix;

constexpr std::size_t kKernels = 8192;

const Gpu& measured_gpu() { return gpu("a100-sxm-40gb"); }

void report_prices(benchmark::State& state, std::size_t per_iteration) {
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(per_iteration));
}

void price_bulk(benchmark::State& state, const KernelModels& models,
                std::span<const KernelWork> work) {
  std::vector<Price> prices(work.size());
  for (auto _ : state) {
    models.price_many(work, measured_gpu(), prices);
    benchmark::DoNotOptimize(prices.data());
  }
  report_prices(state, work.size());
}

void price_one_by_one(benchmark::State& state, const KernelModels& models,
                      std::span<const KernelWork> work) {
  for (auto _ : state) {
    for (const KernelWork& w : work) benchmark::DoNotOptimize(models.price(w, measured_gpu()));
  }
  report_prices(state, work.size());
}

/// The kernels of a mix that one of the families' models covers.
std::vector<KernelWork> kernels_of(std::initializer_list<KernelFamily> families, DType dtype) {
  std::vector<KernelWork> result;
  for (const KernelWork& work : kernel_mix(20 * kKernels)) {
    if (work.dtype != dtype || std::ranges::find(families, work.family) == families.end()) continue;
    result.push_back(work);
    if (result.size() == kKernels) break;
  }
  return result;
}

// ------------------------------------------------------------------------------------ heuristics

void heuristic_bulk(benchmark::State& state) {
  price_bulk(state, KernelModels::heuristic(), kernel_mix(kKernels));
}
BENCHMARK(heuristic_bulk)->Name("price/heuristic/bulk");

void heuristic_one_by_one(benchmark::State& state) {
  price_one_by_one(state, KernelModels::heuristic(), kernel_mix(kKernels));
}
BENCHMARK(heuristic_one_by_one)->Name("price/heuristic/one_by_one");

void heuristic_gemm(benchmark::State& state) {
  price_bulk(state, KernelModels::heuristic(), kernels_of({KernelFamily::kGemm}, DType::kFloat32));
}
BENCHMARK(heuristic_gemm)->Name("price/heuristic/gemm");

// ---------------------------------------------------------------------------------------- learned

/// 250 trees of depth 6 for all chips and 250 for the measured ones, per family.
std::filesystem::path made_model_folder() {
  const auto path = folder() / "models";
  if (std::filesystem::exists(path)) return path;
  std::filesystem::create_directories(path);
  for (const KernelFamily family :
       {KernelFamily::kGemm, KernelFamily::kElementwise, KernelFamily::kSoftmax}) {
    const auto model = test_support::made_model(family, DType::kFloat32, 250, 6);
    if (const auto done =
            learned::write_model_file(path / (std::string(model.name) + ".json"), {model});
        !done) {
      stop(done.error());
    }
  }
  return path;
}

const KernelModels& made_models() {
  static const LearnedModels models = value_of(LearnedModels::open(made_model_folder()));
  return models.models();
}

std::vector<KernelWork> covered_kernels() {
  return kernels_of({KernelFamily::kGemm, KernelFamily::kElementwise, KernelFamily::kSoftmax},
                    DType::kFloat32);
}

void learned_bulk(benchmark::State& state) { price_bulk(state, made_models(), covered_kernels()); }
BENCHMARK(learned_bulk)->Name("price/learned/bulk");

void learned_one_by_one(benchmark::State& state) {
  price_one_by_one(state, made_models(), covered_kernels());
}
BENCHMARK(learned_one_by_one)->Name("price/learned/one_by_one");

// From opening the folder to the first price of a matrix product, which reads one file.
void learned_load(benchmark::State& state, const std::filesystem::path& path) {
  const KernelWork work = gemm_work({.m = 512, .n = 512, .k = 512}, DType::kFloat32, false);
  for (auto _ : state) {
    const LearnedModels models = value_of(LearnedModels::open(path));
    benchmark::DoNotOptimize(models.models().price(work, measured_gpu()));
    if (const auto problem = models.problem()) stop(*problem);
  }
}
void learned_load_made(benchmark::State& state) { learned_load(state, made_model_folder()); }
BENCHMARK(learned_load_made)->Name("price/learned/load")->Unit(benchmark::kMillisecond);

// The models that come with the program, where there are some.
[[maybe_unused]] const bool kShipped = [] {
  const auto data = find_data_folder();
  if (!data) return false;
  const auto path = *data / "models";
  if (!std::filesystem::is_directory(path)) return false;
  static std::optional<LearnedModels> shipped;
  const auto models = [path]() -> const KernelModels& {
    if (!shipped) shipped = value_of(LearnedModels::open(path));
    return shipped->models();
  };
  benchmark::RegisterBenchmark("price/shipped/bulk", [models](benchmark::State& state) {
    price_bulk(state, models(), covered_kernels());
  });
  benchmark::RegisterBenchmark("price/shipped/one_by_one", [models](benchmark::State& state) {
    price_one_by_one(state, models(), covered_kernels());
  });
  benchmark::RegisterBenchmark("price/shipped/load", learned_load, path)
      ->Unit(benchmark::kMillisecond);
  return true;
}();

// ------------------------------------------------------------------------------------------ cache

/// A cache that knows every kernel, and the kernels in random order.
struct FullCache {
  std::vector<KernelWork> work =
      kernels_of({KernelFamily::kGemm, KernelFamily::kElementwise}, DType::kFloat32);
  PriceCache cache{made_models(), measured_gpu(), 4 * kKernels};
  FullCache() {
    std::vector<Price> prices(work.size());
    cache.price_many(work, prices);
  }
};

void cache_hits(benchmark::State& state) {
  static FullCache full;  // its making is no part of the time: threads start together after it
  std::vector<KernelWork> work = full.work;
  std::shuffle(work.begin(), work.end(), std::mt19937(static_cast<unsigned>(state.thread_index())));
  for (auto _ : state) {
    for (const KernelWork& w : work) benchmark::DoNotOptimize(full.cache.price(w));
  }
  report_prices(state, work.size());
  state.counters["misses"] = static_cast<double>(full.cache.misses() - kKernels);
}
BENCHMARK(cache_hits)->Name("price/cache/hits")->Threads(1)->Threads(2)->UseRealTime();

}  // namespace
}  // namespace perfmodel::benchmarks
