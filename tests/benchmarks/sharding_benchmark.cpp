// Plans for embedding tables: how the search grows with tables and with GPUs, at TorchRec's costs.

#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "sharding/torchrec_space.hpp"

namespace perfmodel::benchmarks {
namespace {

using sharding::ShardedTable;

// Rows and ids per sample over several orders of magnitude, as in recommenders.
std::vector<ShardedTable> random_tables(std::size_t count) {
  constexpr std::array<std::int64_t, 4> kDims = {32, 64, 128, 256};
  std::mt19937 random(1);
  std::uniform_real_distribution<double> exponent(2.3, 7.3), ids(0, 1.5);
  std::vector<ShardedTable> tables(count);
  for (std::size_t t = 0; t < count; ++t) {
    tables[t].name = "t" + std::to_string(t);
    tables[t].rows = static_cast<std::int64_t>(std::pow(10, exponent(random)));
    tables[t].dim = kDims[random() % kDims.size()];
    tables[t].element_bytes = 2;
    tables[t].features.front().pooling_factor = std::pow(10, ids(random));
  }
  return tables;
}

// Hosts of eight GPUs with 80 GB of HBM at 3.35 TB/s.
sharding::TorchrecTopology topology_of(std::int64_t world) {
  constexpr double kGiB = sharding::TorchrecTopology::kGiBPerSecond;
  return {.world = world,
          .local_world = 8,
          .hbm_cap = 80'000'000'000,
          .hbm_bandwidth = 3120 * kGiB,
          .host_link_bandwidth = 50 * kGiB,
          .intra_host_bandwidth = 420 * kGiB,
          .inter_host_bandwidth = 46 * kGiB};
}

// "exponent": how seconds grow with the size, from the smallest one of the series to this one.
void report_growth(benchmark::State& state, const std::string& series, double size,
                   double seconds) {
  static std::map<std::string, std::pair<double, double>> smallest;
  const auto& [least_size, least_seconds] =
      smallest.try_emplace(series, std::pair(size, seconds)).first->second;
  if (size > least_size) {
    state.counters["exponent"] = std::log(seconds / least_seconds) / std::log(size / least_size);
  }
}

// Costs of all options, then the search with its own budget of moves.
void plan(benchmark::State& state, const std::string& series, std::size_t count, std::int64_t world,
          std::size_t size) {
  const std::vector<ShardedTable> tables = random_tables(count);
  const auto topology = topology_of(world);
  double gap = 0, moves = 0, fastest = std::numeric_limits<double>::max();
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    const auto space =
        sharding::make_torchrec_space(tables, topology, {}, {.hbm_cap = topology.hbm_cap * 4 / 5});
    if (!space) {
      state.SkipWithError(space.error().message.c_str());
      break;
    }
    const auto found = sharding::search_plans(space->space, {.time_budget_s = 600});
    if (!found) {
      state.SkipWithError(found.error().message.c_str());
      break;
    }
    fastest = std::min(
        fastest, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    gap = found->plans.front().objective / found->lower_bound - 1;
    moves += static_cast<double>(found->moves);
  }
  state.counters["gap_percent"] = 100 * gap;
  state.counters["moves"] = benchmark::Counter(moves, benchmark::Counter::kIsRate);
  report_growth(state, series, static_cast<double>(size), fastest);
}

void add(const std::string& series, std::size_t tables, std::int64_t world, std::size_t size) {
  const bool large = tables >= 1000 || world >= 1024;
  const std::string name = series + (large ? "/large/" : "/") + std::to_string(size);
  benchmark::RegisterBenchmark(name.c_str(), plan, series, tables, world, size)
      ->Unit(benchmark::kMillisecond);
}

[[maybe_unused]] const bool kRegistered = [] {
  for (std::size_t tables : {100U, 400U, 1000U, 2000U}) {
    add("shard/128_gpus/tables", tables, 128, tables);
  }
  for (std::int64_t world : {8, 64, 256, 1024}) {
    add("shard/200_tables/gpus", 200, world, static_cast<std::size_t>(world));
  }
  add("shard/2000_tables/gpus", 2000, 1024, 1024);
  return true;
}();

}  // namespace
}  // namespace perfmodel::benchmarks
