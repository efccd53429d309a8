#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>

#include "perfmodel/layout.hpp"

/// Random jobs and layouts for tests of what holds for all of them.
namespace perfmodel::test_support {

struct RandomLayout {
  LayoutJob job;
  ParallelLayout layout;
};

/// They have few sizes, so that most of their layers are priced once.
class LayoutQuestions {
 public:
  RandomLayout next() {
    RandomLayout made;
    LayoutJob& job = made.job;
    const std::int64_t hidden = of<std::int64_t>({1024, 2048});
    job.model = {.name = "random",
                 .layers = of<std::int64_t>({8, 16, 32}),
                 .hidden = hidden,
                 .heads = hidden / 128,
                 .feed_forward = 4 * hidden,
                 .vocabulary = 32768,
                 .tied = chance()};
    if (chance()) {
      job.model.experts = {.experts = 16, .top_k = 2, .hidden = hidden};
    }
    job.model.next_tokens = of<std::int64_t>({0, 0, 1});
    job.sequence = 2048;
    job.global_batch = of<std::int64_t>({32, 64, 256});
    job.software = of<std::string>(
        {"megatron", "nanotron", "nemo", "fsdp", "megatron-deepspeed", "deepspeed"});
    ParallelLayout& layout = made.layout;
    layout.tp = of<std::int64_t>({1, 4});
    layout.pp = of<std::int64_t>({1, 2, 4});
    layout.dp = of<std::int64_t>({1, 4, 8});
    layout.sequence_parallel = layout.tp > 1;
    if (layout.pp > 1 && chance()) layout.vp = 2;
    layout.zero = layout.pp == 1 ? of({Sharding::kNone, Sharding::kZero1, Sharding::kZero3})
                                 : of({Sharding::kNone, Sharding::kZero1});
    if (layout.pp > 1 && layout.vp == 1) {
      layout.order = of({PipelineOrder::k1F1B, PipelineOrder::kGpipe, PipelineOrder::kZbH1});
    }
    if (job.model.experts.experts > 0) {
      layout.ep = layout.dp;
      layout.dispatcher = of({Dispatcher::kAllToAll, Dispatcher::kDeepEp, Dispatcher::kHybridEp});
    }
    layout.async_tp = layout.tp > 1 && chance();
    layout.recompute = of<LayoutRecompute>({LayoutRecompute::kNone, LayoutRecompute::kNone,
                                            LayoutRecompute(LayoutRecompute::kEvery, 2),
                                            LayoutRecompute(LayoutRecompute::kUniform, 2)});
    job.compiled = below(4) == 0;
    job.cuda_graphs = of<std::uint8_t>({0, LayoutJob::kFullGraph});
    if (!job.compiled && chance()) job.cuda_graphs = LayoutJob::kAttentionGraph;
    return made;
  }
  std::size_t below(std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
  }

 private:
  bool chance() { return below(2) == 1; }
  template <class Value>
  Value of(std::initializer_list<Value> values) {
    return values.begin()[below(values.size())];
  }
  std::mt19937_64 random_{59};
};

}  // namespace perfmodel::test_support
