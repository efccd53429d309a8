#include "pipeline_sweep.hpp"

#include <algorithm>
#include <array>

namespace perfmodel::parallel {
namespace {

constexpr double kNotYet = -1;

/// A microbatch in a row: forward through the places, then backward through them. Each row takes
/// the results of the one before it.
struct RowStep {
  std::int64_t row, microbatch;
};

/// The lists of the stages; see pipeline_order. All stages work through the same chunks and
/// microbatches.
class StageLists {
 public:
  StageLists(PipelineSchedule schedule, std::int64_t p, std::int64_t v, std::int64_t m)
      : schedule_(schedule), p_(p), v_(v), m_(m) {
    for (const bool backward : {false, true}) {
      for (std::int64_t k = 0; k < m * v; ++k) steps_[backward].push_back(step(k, backward));
    }
  }

  /// Forward steps that a stage is ahead of its backward steps.
  std::int64_t warm_up(std::int64_t stage) const {
    if (schedule_ == PipelineSchedule::kGpipe) return m_ * v_;
    if (schedule_ == PipelineSchedule::k1F1B) return std::min(p_ - 1 - stage, m_);
    return m_ == p_ ? m_ * v_ : std::min(2 * (p_ - 1 - stage) + (v_ - 1) * p_, m_ * v_);
  }
  /// The steps of the first stage: stage r is r rows later forward and r rows earlier backward.
  const RowStep* steps(bool backward) const { return steps_[backward].data(); }

 private:
  RowStep step(std::int64_t k, bool backward) const {
    const std::int64_t last = 2 * p_ * v_ - 1;
    if (schedule_ != PipelineSchedule::kInterleaved) {
      const bool reversed = schedule_ == PipelineSchedule::kGpipe && backward;
      return {backward ? last : 0, reversed ? m_ - 1 - k : k};
    }
    const std::int64_t turn = k % (p_ * v_) / p_, chunk = backward ? v_ - 1 - turn : turn;
    return {backward ? last - chunk * p_ : chunk * p_, k / (p_ * v_) * p_ + k % p_};
  }

  PipelineSchedule schedule_;
  std::int64_t p_, v_, m_;
  std::array<std::vector<RowStep>, 2> steps_;  // forward, backward
};

PipelineEnds run_lists(const PipelineTimes& times, std::int64_t microbatches) {
  const std::int64_t p = times.stages, v = times.chunks, m = microbatches, depth = p * v;
  const StageLists lists(times.schedule, p, v, m);
  // By row: its time, the way to the next row, the end of its last step.
  thread_local std::vector<double> lasts, hops, ended;
  const auto places = static_cast<std::size_t>(depth);
  const auto forward_us = times.forward_us.first(places);
  const auto backward_us = times.backward_us.first(places);
  lasts.assign(forward_us.begin(), forward_us.end());
  lasts.insert(lasts.end(), backward_us.rbegin(), backward_us.rend());
  hops.assign(lasts.size(), p > 1 ? times.hop_us : 0);
  hops[places - 1] = 0;  // the last place begins its backward pass
  ended.assign(lasts.size(), 0);
  // By row and microbatch: when its input is there. The first row waits for none.
  thread_local std::vector<double> ready;
  ready.assign(static_cast<std::size_t>((2 * depth + 1) * m), kNotYet);
  std::fill_n(ready.begin(), m, 0.0);
  thread_local std::vector<std::array<std::int64_t, 2>> done;  // by stage: steps of each pass
  done.assign(static_cast<std::size_t>(p), {0, 0});
  PipelineEnds ends;
  ends.last_backward_us.assign(static_cast<std::size_t>(p), 0);
  const std::int64_t count = m * v;
  for (std::int64_t left = 2 * count * p; left > 0;) {
    for (std::int64_t r = 0; r < p; ++r) {
      auto& [forward, backward] = done[static_cast<std::size_t>(r)];
      double& free = ends.last_backward_us[static_cast<std::size_t>(r)];
      const std::int64_t warm = lists.warm_up(r);
      while (backward < count) {
        const bool is_backward = forward == count || forward - backward > warm;
        std::int64_t& next = is_backward ? backward : forward;
        const RowStep step = lists.steps(is_backward)[next];
        const auto row = static_cast<std::size_t>(is_backward ? step.row - r : step.row + r);
        double* const from =
            &ready[row * static_cast<std::size_t>(m) + static_cast<std::size_t>(step.microbatch)];
        if (*from < 0) break;
        free = std::max(free, *from) + lasts[row];
        from[m] = free + hops[row];
        ended[row] = free;
        ++next;
        --left;
      }
    }
  }
  ends.chunk_last_backward_us.assign(ended.rbegin(), ended.rbegin() + depth);
  ends.makespan_us = *std::max_element(ends.last_backward_us.begin(), ends.last_backward_us.end());
  return ends;
}

PipelineEnds run_pipeline(const PipelineTimes& times, std::int64_t most_operations) {
  const std::int64_t p = times.stages, m = times.microbatches;
  const std::int64_t few = 4 * p + m % p;  // a run whose pace has settled
  constexpr std::int64_t kRounds = 4;      // slow cycles may last several microbatches
  const std::int64_t more = few + kRounds * p;
  if (2 * p * times.chunks * m <= most_operations || m <= more) return run_lists(times, m);
  PipelineEnds ends = run_lists(times, few);
  const PipelineEnds later = run_lists(times, more);
  const double rounds = static_cast<double>(m - few) / static_cast<double>(p);
  const double pace = (later.makespan_us - ends.makespan_us) / kRounds;
  ends.makespan_us += rounds * pace;
  for (auto* list : {&ends.last_backward_us, &ends.chunk_last_backward_us}) {
    for (double& end : *list) end += rounds * pace;
  }
  return ends;
}

/// The pipelines that a thread was asked for last: layouts that differ in sharding share theirs.
struct RunPipeline {
  PipelineTimes times;
  std::int64_t most_operations = -1;
  std::vector<double> forward, backward;
  PipelineEnds ends;

  bool is_of(const PipelineTimes& asked, std::int64_t most) const {
    return most == most_operations && asked.schedule == times.schedule &&
           asked.stages == times.stages && asked.chunks == times.chunks &&
           asked.microbatches == times.microbatches && asked.hop_us == times.hop_us &&
           std::ranges::equal(asked.forward_us, forward) &&
           std::ranges::equal(asked.backward_us, backward);
  }
};

}  // namespace

PipelineEnds pipeline_ends(const PipelineTimes& times, std::int64_t most_operations) {
  thread_local std::array<RunPipeline, 4> known;
  thread_local std::size_t next = 0;
  for (const RunPipeline& run : known) {
    if (run.is_of(times, most_operations)) return run.ends;
  }
  RunPipeline& run = known[next];
  next = (next + 1) % known.size();
  run.times = times;
  run.most_operations = most_operations;
  run.forward.assign(times.forward_us.begin(), times.forward_us.end());
  run.backward.assign(times.backward_us.begin(), times.backward_us.end());
  run.ends = run_pipeline(times, most_operations);
  return run.ends;
}

}  // namespace perfmodel::parallel
