#include "pipeline_sweep.hpp"

#include <algorithm>
#include <array>

namespace perfmodel::parallel {
namespace {

constexpr double kNotYet = -1;

struct StageOp {
  std::int64_t place, microbatch;
  bool backward;
};

/// Lists of the stages, computed as they are asked for; see pipeline_order. All stages work through
/// the same chunks and microbatches.
class StageLists {
 public:
  StageLists(PipelineSchedule schedule, std::int64_t p, std::int64_t v, std::int64_t m)
      : schedule_(schedule), p_(p), v_(v), m_(m) {
    for (const bool backward : {false, true}) {
      for (std::int64_t k = 0; k < m * v; ++k) steps_[backward].push_back(step(k, backward));
    }
  }

  std::int64_t warm_up(std::int64_t stage) const {
    if (schedule_ == PipelineSchedule::kGpipe) return m_ * v_;
    if (schedule_ == PipelineSchedule::k1F1B) return std::min(p_ - 1 - stage, m_);
    return m_ == p_ ? m_ * v_ : std::min(2 * (p_ - 1 - stage) + (v_ - 1) * p_, m_ * v_);
  }
  StageOp at(std::int64_t stage, std::int64_t warm, std::int64_t position) const {
    const std::int64_t count = m_ * v_;
    bool backward = position >= warm;
    std::int64_t k = position;
    if (position >= 2 * count - warm) {
      k = position - count;
    } else if (backward) {
      const std::int64_t pair = (position - warm) / 2;
      backward = (position - warm) % 2 == 1;
      k = backward ? pair : warm + pair;
    }
    StageOp op = steps_[backward].begin()[k];
    op.place += stage;
    return op;
  }

 private:
  /// The operation of the first stage.
  StageOp step(std::int64_t k, bool backward) const {
    if (schedule_ != PipelineSchedule::kInterleaved) {
      const bool reversed = schedule_ == PipelineSchedule::kGpipe && backward;
      return {0, reversed ? m_ - 1 - k : k, backward};
    }
    const std::int64_t turn = k % (p_ * v_) / p_, chunk = backward ? v_ - 1 - turn : turn;
    return {chunk * p_, k / (p_ * v_) * p_ + k % p_, backward};
  }

  PipelineSchedule schedule_;
  std::int64_t p_, v_, m_;
  std::array<std::vector<StageOp>, 2> steps_;  // forward, backward
};

PipelineEnds run_lists(const PipelineTimes& times, std::int64_t microbatches) {
  const std::int64_t p = times.stages, v = times.chunks, m = microbatches, depth = p * v;
  const StageLists lists(times.schedule, p, v, m);
  const double hop = p > 1 ? times.hop_us : 0;
  thread_local std::vector<double> forward, backward;
  forward.assign(static_cast<std::size_t>(depth * m), kNotYet);
  backward.assign(static_cast<std::size_t>(depth * m), kNotYet);
  thread_local std::vector<std::int64_t> position, warm;
  position.assign(static_cast<std::size_t>(p), 0);
  warm.resize(static_cast<std::size_t>(p));
  for (std::int64_t r = 0; r < p; ++r) warm[static_cast<std::size_t>(r)] = lists.warm_up(r);
  PipelineEnds ends;
  ends.last_backward_us.assign(static_cast<std::size_t>(p), 0);
  ends.chunk_last_backward_us.assign(times.backward_us.size(), 0);
  const auto end_of = [m](std::vector<double>& ended, std::int64_t place,
                          std::int64_t microbatch) -> double& {
    return ended[static_cast<std::size_t>(place * m + microbatch)];
  };
  // When the operation can start; kNotYet: its predecessor has not ended.
  const auto ready = [&](const StageOp& op) {
    if (!op.backward) {
      if (op.place == 0) return 0.0;
      const double before = end_of(forward, op.place - 1, op.microbatch);
      return before < 0 ? kNotYet : before + hop;
    }
    if (op.place == depth - 1) return end_of(forward, op.place, op.microbatch);
    const double before = end_of(backward, op.place + 1, op.microbatch);
    return before < 0 ? kNotYet : before + hop;
  };
  const std::int64_t length = 2 * m * v;
  std::int64_t left = length * p;
  while (left > 0) {
    for (std::int64_t r = 0; r < p; ++r) {
      std::int64_t& next = position[static_cast<std::size_t>(r)];
      double& free = ends.last_backward_us[static_cast<std::size_t>(r)];
      while (next < length) {
        const StageOp op = lists.at(r, warm[static_cast<std::size_t>(r)], next);
        const double from = ready(op);
        if (from < 0) break;
        const auto place = static_cast<std::size_t>(op.place);
        free = std::max(free, from) +
               (op.backward ? times.backward_us[place] : times.forward_us[place]);
        end_of(op.backward ? backward : forward, op.place, op.microbatch) = free;
        if (op.backward) ends.chunk_last_backward_us[place] = free;
        ++next;
        --left;
      }
    }
  }
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
