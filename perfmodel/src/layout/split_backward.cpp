#include "split_backward.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <optional>

namespace perfmodel::parallel {
namespace {

using Kind = SplitOp::Kind;

/// A stage's list in the making; passes of a chunk come in the order of their microbatches.
class SplitList {
 public:
  explicit SplitList(std::int64_t microbatches) : microbatches_(microbatches) {}

  void forward(int chunk) { add(Kind::kForward, chunk, forwards_[chunk]++); }
  /// `own`: with its weights' gradients; else they wait their turn.
  void backward(int chunk, bool own = true) {
    const std::int32_t microbatch = backwards_[chunk]++;
    add(own ? Kind::kBackward : Kind::kInput, chunk, microbatch);
    if (!own) waiting_.push_back({Kind::kWeights, chunk, microbatch});
  }
  void weights() {
    if (waiting_.empty()) return;
    const SplitOp op = waiting_.front();
    waiting_.pop_front();
    add(op.kind, op.chunk, op.microbatch);
  }
  void all_weights() {
    while (!waiting_.empty()) weights();
  }
  void together(int forward, int backward) {
    const std::int32_t done = backwards_[backward]++;
    ops_.push_back({Kind::kTogether, forward, forwards_[forward]++, backward, done});
  }
  std::int64_t forwards(int chunk) const { return forwards_[chunk]; }
  std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  std::vector<SplitOp> take() { return std::move(ops_); }

 private:
  // Lists that are longer than the microbatches leave out what there is not.
  void add(Kind kind, int chunk, std::int32_t microbatch) {
    if (microbatch < microbatches_) ops_.push_back({kind, chunk, microbatch});
  }

  std::int64_t microbatches_;
  std::vector<SplitOp> ops_;
  std::deque<SplitOp> waiting_;
  std::int32_t forwards_[2] = {}, backwards_[2] = {};
};

std::vector<SplitOp> zb_h1_order(std::int64_t p, std::int64_t m, std::int64_t r) {
  SplitList list(m);
  const auto backward = [&] {
    list.backward(0, false);
    if (list.waiting() > r) list.weights();
  };
  const std::int64_t warm_up = std::min(p - 1 - r, m);
  for (std::int64_t i = 0; i < warm_up; ++i) list.forward(0);
  for (std::int64_t i = warm_up; i < m; ++i) {
    list.forward(0);
    backward();
  }
  for (std::int64_t i = 0; i < warm_up; ++i) backward();
  list.all_weights();
  return list.take();
}

std::vector<SplitOp> zb_v_order(std::int64_t p, std::int64_t m, std::int64_t r) {
  SplitList list(m);
  const std::int64_t most = std::max(2 * p - 1, m);
  const auto backward = [&](int chunk) {
    list.backward(chunk, false);
    list.weights();
  };
  for (std::int64_t i = 0; i < 2 * (p - r) - 1; ++i) list.forward(0);
  for (std::int64_t i = 0; i < r; ++i) {
    list.forward(1);
    list.forward(0);
  }
  for (std::int64_t i = 0; i < p - r; ++i) {
    list.forward(1);
    backward(1);
  }
  while (list.forwards(1) < list.forwards(0) || list.forwards(0) < most) {
    if (list.forwards(0) < most) list.forward(0);
    backward(0);
    list.forward(1);
    backward(1);
  }
  for (std::int64_t i = 0; i < r; ++i) {
    list.backward(0, false);
    list.backward(1, false);
  }
  for (std::int64_t i = 0; i < p - r; ++i) {
    list.backward(0, false);
    list.weights();
  }
  list.all_weights();
  return list.take();
}

std::vector<SplitOp> dual_pipe_order(std::int64_t p, std::int64_t m, std::int64_t r) {
  SplitList list(m);
  const bool is_last = r + 1 == p;
  for (std::int64_t i = 0; i < 2 * (p - r - 1); ++i) list.forward(0);
  for (std::int64_t i = 0; i < r + 1; ++i) {
    list.forward(0);
    list.forward(1);
  }
  for (std::int64_t i = 0; i < p - r - 1; ++i) {
    list.backward(1, false);
    list.weights();
    list.forward(1);
  }
  for (std::int64_t i = 0; i < m - 2 * p + r + 1; ++i) {
    if (i == 0 && is_last) {
      list.forward(0);
      list.backward(1);
    } else {
      list.together(0, 1);
    }
    list.together(1, 0);
  }
  for (std::int64_t i = 0; i < p - r - 1; ++i) {
    list.backward(1);
    list.together(1, 0);
  }
  bool splits = false;
  for (std::int64_t i = 0; i < r + 1; ++i) {
    const bool is_half = i == (r + 1) / 2;
    if (is_half && r % 2 == 1) splits = true;
    list.backward(1, !splits);
    if (is_half && r % 2 == 0) splits = true;
    list.backward(0, !splits);
  }
  for (std::int64_t i = 0; i < p - r - 1; ++i) {
    list.weights();
    list.backward(0, false);
  }
  list.all_weights();
  return list.take();
}

constexpr double kNotPlaced = -1;

/// The lists of all stages at work.
class SplitRun {
 public:
  SplitRun(const SplitTimes& times, std::int64_t microbatches)
      : times_(times), m_(microbatches), p_(times.stages), depth_(p_ * chunks_of(times.schedule)) {
    forward_.assign(depth_ * m_, kNotPlaced);
    input_.assign(depth_ * m_, kNotPlaced);
  }

  SplitEnds run() {
    SplitEnds ends;
    ends.last_backward_us.assign(p_, 0);
    ends.hidden_us.assign(p_, 0);
    std::vector<std::vector<SplitOp>> lists;
    std::size_t left = 0;
    for (std::int64_t r = 0; r < p_; ++r) {
      lists.push_back(split_order(times_.schedule, p_, m_, r));
      left += lists.back().size();
    }
    std::vector<std::size_t> next(lists.size());
    while (left > 0) {
      const std::size_t before = left;
      for (std::size_t r = 0; r < lists.size(); ++r) {
        while (next[r] < lists[r].size()) {
          const SplitOp& op = lists[r][next[r]];
          const auto from = ready(static_cast<std::int64_t>(r), op);
          if (!from) break;
          double& free = ends.last_backward_us[r];
          const double start = std::max(free, *from);
          free = start + duration(static_cast<std::int64_t>(r), op, ends.hidden_us[r]);
          note(static_cast<std::int64_t>(r), op, free);
          ++next[r];
          --left;
        }
      }
      if (left == before) break;  // too few microbatches for the schedule (checked by callers)
    }
    ends.makespan_us = *std::ranges::max_element(ends.last_backward_us);
    return ends;
  }

 private:
  std::size_t place_of(std::int64_t stage, std::int32_t chunk) const {
    return static_cast<std::size_t>(chunk == 0 ? stage : 2 * p_ - 1 - stage);
  }
  double& end_of(std::vector<double>& ends, std::size_t place, std::int32_t microbatch) {
    return ends[place * static_cast<std::size_t>(m_) + static_cast<std::size_t>(microbatch)];
  }
  double hop_between(std::size_t place, std::size_t other) const {
    const auto stage = [&](std::size_t at) {
      const auto i = static_cast<std::int64_t>(at);
      return i < p_ ? i : 2 * p_ - 1 - i;
    };
    return stage(place) == stage(other) ? 0 : times_.hop_us;
  }

  std::optional<double> forward_ready(std::size_t place, std::int32_t microbatch) {
    if (place == 0) return 0.0;
    const double before = end_of(forward_, place - 1, microbatch);
    if (before < 0) return std::nullopt;
    return before + hop_between(place, place - 1);
  }
  std::optional<double> backward_ready(std::size_t place, std::int32_t microbatch) {
    const bool is_last = static_cast<std::int64_t>(place) + 1 == depth_;
    const double before =
        is_last ? end_of(forward_, place, microbatch) : end_of(input_, place + 1, microbatch);
    if (before < 0) return std::nullopt;
    return before + (is_last ? 0 : hop_between(place, place + 1));
  }
  std::optional<double> ready(std::int64_t stage, const SplitOp& op) {
    const std::size_t place = place_of(stage, op.chunk);
    switch (op.kind) {
      case Kind::kForward: return forward_ready(place, op.microbatch);
      case Kind::kInput:
      case Kind::kBackward: return backward_ready(place, op.microbatch);
      case Kind::kWeights: return 0.0;  // after its input's gradient in the same list
      case Kind::kTogether: {
        const auto one = forward_ready(place, op.microbatch);
        const auto other = backward_ready(place_of(stage, op.other_chunk), op.other_microbatch);
        if (!one || !other) return std::nullopt;
        return std::max(*one, *other);
      }
    }
    return std::nullopt;
  }

  double duration(std::int64_t stage, const SplitOp& op, double& hidden_us) const {
    const std::size_t place = place_of(stage, op.chunk);
    switch (op.kind) {
      case Kind::kForward: return times_.forward_us[place];
      case Kind::kInput: return times_.input_us[place];
      case Kind::kWeights: return times_.weights_us[place];
      case Kind::kBackward: return times_.input_us[place] + times_.weights_us[place];
      case Kind::kTogether: {
        const std::size_t other = place_of(stage, op.other_chunk);
        const double both =
            times_.forward_us[place] + times_.input_us[other] + times_.weights_us[other];
        const double waits = times_.forward_hides_us[place] + times_.backward_hides_us[other];
        const double hidden = std::max(0.0, std::min(waits, both - waits));
        hidden_us += hidden;
        return both - hidden;
      }
    }
    return 0;
  }

  void note(std::int64_t stage, const SplitOp& op, double end) {
    const std::size_t place = place_of(stage, op.chunk);
    if (op.kind == Kind::kForward || op.kind == Kind::kTogether) {
      end_of(forward_, place, op.microbatch) = end;
    }
    if (op.kind == Kind::kInput || op.kind == Kind::kBackward) {
      end_of(input_, place, op.microbatch) = end;
    }
    if (op.kind == Kind::kTogether) {
      end_of(input_, place_of(stage, op.other_chunk), op.other_microbatch) = end;
    }
  }

  const SplitTimes& times_;
  std::int64_t m_, p_, depth_;
  std::vector<double> forward_, input_;
};

}  // namespace

std::int64_t chunks_of(SplitSchedule schedule) { return schedule == SplitSchedule::kZbH1 ? 1 : 2; }

std::vector<SplitOp> split_order(SplitSchedule schedule, std::int64_t stages,
                                 std::int64_t microbatches, std::int64_t stage) {
  switch (schedule) {
    case SplitSchedule::kZbH1: return zb_h1_order(stages, microbatches, stage);
    case SplitSchedule::kZbV: return zb_v_order(stages, microbatches, stage);
    case SplitSchedule::kDualPipeV: return dual_pipe_order(stages, microbatches, stage);
  }
  return {};
}

SplitEnds split_ends(const SplitTimes& times, std::int64_t most_microbatches) {
  const std::int64_t more = std::max(most_microbatches, 8 * times.stages);
  if (times.microbatches <= more) return SplitRun(times, times.microbatches).run();
  const std::int64_t few = more - 2 * times.stages;
  const SplitEnds before = SplitRun(times, few).run();
  SplitEnds ends = SplitRun(times, more).run();
  const double rounds =
      static_cast<double>(times.microbatches - more) / static_cast<double>(more - few);
  const double pace = ends.makespan_us - before.makespan_us;
  ends.makespan_us += rounds * pace;
  for (std::size_t r = 0; r < ends.last_backward_us.size(); ++r) {
    ends.last_backward_us[r] += rounds * pace;
    ends.hidden_us[r] += rounds * (ends.hidden_us[r] - before.hidden_us[r]);
  }
  return ends;
}

std::int64_t split_live_losses(SplitSchedule schedule, std::int64_t stages,
                               std::int64_t microbatches, std::int64_t stage) {
  const auto last = static_cast<std::int32_t>(chunks_of(schedule) - 1);
  std::int64_t live = 0, most = 0;
  const std::int64_t enough = std::min(microbatches, 4 * stages);
  for (const SplitOp& op : split_order(schedule, stages, enough, stage)) {
    const bool together = op.kind == Kind::kTogether;
    if (op.chunk == last && (together || op.kind == Kind::kForward)) ++live;
    most = std::max(most, live);
    const std::int32_t done = together ? op.other_chunk : op.chunk;
    if (done == last && op.kind != Kind::kForward && op.kind != Kind::kWeights) --live;
  }
  return most;
}

std::int64_t split_live_chunks(SplitSchedule schedule, std::int64_t stages,
                               std::int64_t microbatches, std::int64_t stage) {
  std::int64_t live = 0, most = 0;
  const std::int64_t enough = std::min(microbatches, 4 * stages);
  for (const SplitOp& op : split_order(schedule, stages, enough, stage)) {
    if (op.kind == Kind::kForward || op.kind == Kind::kTogether) ++live;
    most = std::max(most, live);
    if (op.kind != Kind::kForward && op.kind != Kind::kInput) --live;
  }
  return most;
}

}  // namespace perfmodel::parallel
