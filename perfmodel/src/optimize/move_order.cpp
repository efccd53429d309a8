#include "move_order.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "perfmodel/graph/rewrites/memory.hpp"
#include "perfmodel/graph/rewrites/resize.hpp"
#include "perfmodel/graph/rewrites/training.hpp"

namespace perfmodel::advice {

std::int64_t ranks_of(const std::vector<Axis>& axes, const State& state, const Job& job) {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (state[i] > 0 && axes[i].choices[state[i] - 1U].ranks > 0) {
      return axes[i].choices[state[i] - 1U].ranks;
    }
  }
  return job.world;
}

namespace {

NamedRewrite data_parallel(const std::vector<Axis>& axes, const State& state, std::int64_t world) {
  DataParallelRewrite how{.world_size = world};
  std::string name = fmt::format("--data-parallel {}", world);
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].stage != Stage::kDataParallel || state[i] == 0) continue;
    const Choice& chosen = axes[i].choices[state[i] - 1U];
    if (chosen.ranks > 0) continue;
    if (chosen.bucket_mib > 0) {
      // A cap that the user sets holds for the first bucket, too (bucket_limits.hpp).
      name += fmt::format(",cap={0:g},first={0:g}", chosen.bucket_mib);
      how.bucket_cap_bytes = how.first_bucket_bytes =
          static_cast<std::int64_t>(std::llround(chosen.bucket_mib * (1 << 20)));
    } else if (chosen.split_mib > 0) {
      name += fmt::format(",split={:g}", chosen.split_mib);
      how.split_bytes = static_cast<std::int64_t>(std::llround(chosen.split_mib * (1 << 20)));
    } else {
      how.gradient_as_bucket_view = true;
    }
  }
  if (how.gradient_as_bucket_view) name += ",views";
  return {.name = std::move(name), .apply = [how](const ExecutionGraph& graph) {
            return rewrite_data_parallel(graph, how);
          }};
}

struct Samples {
  std::int64_t step = 0, passes = 1;
};

Samples samples_of(const std::vector<Axis>& axes, const State& state, const Job& job) {
  Samples made{.step = job.batch.value_or(0)};
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (state[i] == 0) continue;
    const Choice& chosen = axes[i].choices[state[i] - 1U];
    if (chosen.batch > 0) made.step = chosen.batch;
    if (chosen.passes > 0) made.passes = chosen.passes;
  }
  return made;
}

NamedRewrite batch_per_pass(const Samples& samples) {
  const std::int64_t batch = samples.step / samples.passes;
  return {.name = fmt::format("--batch {}", batch),
          .apply = [samples, batch](const ExecutionGraph& graph) -> Result<ExecutionGraph> {
            if (samples.step % samples.passes != 0) {
              return decline(fmt::format("{} samples do not divide into {} passes", samples.step,
                                         samples.passes));
            }
            return set_batch_size(graph, {.batch = batch});
          }};
}

NamedRewrite accumulation(std::int64_t passes) {
  return {.name = fmt::format("--accumulate {}", passes),
          .apply = [passes](const ExecutionGraph& graph) {
            return rewrite_accumulation(graph, passes);
          }};
}

}  // namespace

std::string choice_text(const std::vector<Axis>& axes, const State& state, std::size_t axis,
                        const Job& job) {
  const Choice& chosen = axes[axis].choices[state[axis] - 1U];
  if (chosen.passes > 0) {
    const Samples samples = samples_of(axes, state, job);
    return batch_per_pass(samples).name + " " + chosen.text;
  }
  if (chosen.rewrite) return chosen.text;
  State alone(axes.size(), 0);
  alone[axis] = state[axis];
  const auto rewrites = rewrites_of(axes, alone, job);
  return rewrites.empty() ? "(one GPU: no --data-parallel)" : rewrites.front().name;
}

std::vector<NamedRewrite> rewrites_of(const std::vector<Axis>& axes, const State& state,
                                      const Job& job) {
  const std::int64_t world = ranks_of(axes, state, job);
  const Samples samples = samples_of(axes, state, job);
  std::vector<NamedRewrite> rewrites;
  const auto add_stage = [&](Stage stage) {
    if (samples.passes > 1 && stage == Stage::kBatch) {
      if (samples.step != samples.passes * *job.batch) rewrites.push_back(batch_per_pass(samples));
      return;
    }
    if (samples.passes > 1 && stage == Stage::kAccumulate) {
      rewrites.push_back(accumulation(samples.passes));
      return;
    }
    if (stage == Stage::kDataParallel) {
      if (world > 1) rewrites.push_back(data_parallel(axes, state, world));
      return;
    }
    for (std::size_t i = 0; i < axes.size(); ++i) {
      if (state[i] == 0 || axes[i].stage != stage) continue;
      rewrites.push_back(*axes[i].choices[state[i] - 1U].rewrite);
    }
  };
  for (int stage = 0; stage <= static_cast<int>(Stage::kLaunch); ++stage) {
    add_stage(static_cast<Stage>(stage));
  }
  return rewrites;
}

}  // namespace perfmodel::advice
