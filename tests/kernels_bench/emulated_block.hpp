#pragma once

#include <barrier>
#include <cstdint>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

/// Runs a kernel body on the CPU: one thread per thread of a block, blocks one after another.
/// Under TSan a missing sync() is a reported race.
namespace kernels_bench {

struct EmulatedLaunch {
  std::int64_t blocks = 1;
  int threads = 16, warp_size = 4;
  int shared_bytes = 0;
};

class EmulatedBlock {
 public:
  struct State {
    explicit State(const EmulatedLaunch& of)
        : launch(of),
          all(of.threads),
          slots(of.threads),
          shared(of.shared_bytes / sizeof(float) + 1) {
      for (int width = 1; width <= launch.warp_size; width *= 2) {
        auto& groups = lanes.emplace_back();
        for (int first = 0; first < launch.threads; first += width) {
          groups.push_back(std::make_unique<std::barrier<>>(width));
        }
      }
    }
    const EmulatedLaunch launch;
    std::barrier<> all;
    std::vector<std::vector<std::unique_ptr<std::barrier<>>>> lanes;  ///< [log2 width][group]
    std::vector<float> slots;
    std::vector<float> shared;
  };

  EmulatedBlock(State& state, int thread, std::int64_t block)
      : state_(state), thread_(thread), block_(block) {}

  int thread() const { return thread_; }
  int threads() const { return state_.launch.threads; }
  std::int64_t block() const { return block_; }
  std::int64_t blocks() const { return state_.launch.blocks; }
  int warp_size() const { return state_.launch.warp_size; }
  void sync() const { state_.all.arrive_and_wait(); }
  float* shared() const { return state_.shared.data(); }

  float shuffle_xor(float value, int mask, int width) const {
    int level = 0;
    while (1 << level < width) ++level;
    std::barrier<>& group = *state_.lanes.at(level).at(thread_ / width);
    state_.slots[thread_] = value;
    group.arrive_and_wait();
    const float other = state_.slots[thread_ ^ mask];
    group.arrive_and_wait();
    return other;
  }

 private:
  State& state_;
  int thread_;
  std::int64_t block_;
};

template <class Body>
void run_emulated(const Body& body, const EmulatedLaunch& launch) {
  EmulatedBlock::State state(launch);
  const auto run_thread = [&](int thread) {
    for (std::int64_t block = 0; block < launch.blocks; ++block) {
      // Shared memory holds garbage when a block begins.
      if (thread == 0) std::memset(state.shared.data(), 0xff, state.shared.size() * sizeof(float));
      state.all.arrive_and_wait();
      body(EmulatedBlock(state, thread, block));
      state.all.arrive_and_wait();
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < launch.threads; ++thread) threads.emplace_back(run_thread, thread);
  for (auto& thread : threads) thread.join();
}

}  // namespace kernels_bench
