// PyTorch's allocator without a device: operations per second by the number of live blocks.

#include <benchmark/benchmark.h>

#include <cstdint>
#include <random>
#include <vector>

#include "inputs.hpp"
#include "memory/caching_allocator.hpp"

namespace perfmodel::benchmarks {
namespace {

// Each operation frees a random block or asks for one, of 1 B to 64 MiB, all powers of two alike.
void allocate_and_free(benchmark::State& state, const AllocatorOptions& options) {
  const auto live = static_cast<std::size_t>(state.range(0));
  constexpr std::size_t kSizes = 1 << 16;
  std::mt19937 random(1);
  std::vector<std::int64_t> sizes(kSizes);
  for (std::int64_t& bytes : sizes) {
    bytes = 1 + static_cast<std::int64_t>(random() % (1u << (random() % 27)));
  }
  std::vector<std::uint32_t> choices(kSizes);
  for (std::uint32_t& choice : choices) choice = static_cast<std::uint32_t>(random());

  CachingAllocator allocator(options);
  std::vector<BlockId> blocks;
  for (std::size_t i = 0; i < live; ++i) {
    blocks.push_back(value_of(allocator.allocate(sizes[i % kSizes])));
  }
  std::size_t i = 0;
  for (auto _ : state) {
    BlockId& block = blocks[choices[i % kSizes] % live];
    allocator.free(block);
    block = value_of(allocator.allocate(sizes[(i * 7 + 3) % kSizes]));
    ++i;
  }
  state.SetItemsProcessed(2 * state.iterations());
  state.counters["allocated_share"] = static_cast<double>(allocator.current().allocated) /
                                      static_cast<double>(allocator.current().reserved);
}

void segments(benchmark::State& state) { allocate_and_free(state, {}); }
BENCHMARK(segments)->Name("allocator/segments")->Arg(1'000)->Arg(10'000)->Arg(100'000);

void expandable(benchmark::State& state) {
  allocate_and_free(state, {.expandable_segments = true});
}
BENCHMARK(expandable)->Name("allocator/expandable")->Arg(1'000)->Arg(10'000)->Arg(100'000);

}  // namespace
}  // namespace perfmodel::benchmarks
