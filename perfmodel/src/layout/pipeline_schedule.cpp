#include "pipeline_schedule.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "durations.hpp"
#include "perfmodel/detail/schedule.hpp"

namespace perfmodel::parallel {
namespace {

Result<void> check_sizes(PipelineSchedule schedule, std::int64_t stages, std::int64_t chunks,
                         std::int64_t microbatches) {
  const auto found = [](std::int64_t value) { return ", found " + std::to_string(value); };
  if (stages < 1) return fail(ErrorCode::kImpossible, "expected stages >= 1" + found(stages));
  if (chunks < 1) {
    return fail(ErrorCode::kImpossible, "expected chunks per stage >= 1" + found(chunks));
  }
  if (microbatches < 1) {
    return fail(ErrorCode::kImpossible, "expected microbatches >= 1" + found(microbatches));
  }
  if (schedule != PipelineSchedule::kInterleaved && chunks != 1) {
    return fail(ErrorCode::kImpossible, "expected one chunk per stage for " +
                                            std::string(to_string(schedule)) + found(chunks));
  }
  if (schedule == PipelineSchedule::kInterleaved && microbatches % stages != 0) {
    return fail(ErrorCode::kImpossible,
                "expected microbatches to be a multiple of the " + std::to_string(stages) +
                    " stages of an interleaved pipeline" + found(microbatches));
  }
  constexpr double kMostTasks = std::numeric_limits<TaskGraph::TaskId>::max();
  if (2.0 * static_cast<double>(stages) * static_cast<double>(chunks) *
          static_cast<double>(microbatches) >
      kMostTasks) {
    return fail(ErrorCode::kImpossible, "expected less than 2^31 operations in a pipeline, found " +
                                            std::to_string(stages) + " stages x " +
                                            std::to_string(chunks) + " chunks x " +
                                            std::to_string(microbatches) + " microbatches x 2");
  }
  return {};
}

std::vector<PipelineOp> make_order(PipelineSchedule schedule, std::int64_t p, std::int64_t v,
                                   std::int64_t m, std::int64_t r) {
  const std::int64_t count = m * v;
  std::vector<PipelineOp> order;
  order.reserve(static_cast<std::size_t>(2 * count));
  const auto step = [&](std::int64_t k, bool backward) {
    std::int64_t chunk = 0, microbatch = k;
    if (schedule == PipelineSchedule::kInterleaved) {
      chunk = k % (p * v) / p;
      microbatch = k / (p * v) * p + k % p;
      if (backward) chunk = v - 1 - chunk;
    } else if (schedule == PipelineSchedule::kGpipe && backward) {
      microbatch = m - 1 - k;
    }
    order.push_back({.microbatch = static_cast<std::int32_t>(microbatch),
                     .chunk = static_cast<std::int32_t>(chunk),
                     .backward = backward});
  };
  std::int64_t warm_up = count;  // GPipe
  if (schedule == PipelineSchedule::k1F1B) {
    warm_up = std::min(p - 1 - r, m);
  } else if (schedule == PipelineSchedule::kInterleaved && m != p) {
    warm_up = std::min(2 * (p - 1 - r) + (v - 1) * p, count);
  }
  for (std::int64_t k = 0; k < warm_up; ++k) step(k, false);
  for (std::int64_t k = warm_up; k < count; ++k) {
    step(k, false);
    step(k - warm_up, true);
  }
  for (std::int64_t k = count - warm_up; k < count; ++k) step(k, true);
  return order;
}

Result<void> check_times(const PipelineWork& work, std::size_t chunks) {
  if (work.forward_us.size() != work.backward_us.size()) {
    return fail(ErrorCode::kImpossible,
                "expected backward times of " + std::to_string(work.forward_us.size()) +
                    " stages, found " + std::to_string(work.backward_us.size()));
  }
  for (const auto* times : {&work.forward_us, &work.backward_us}) {
    const std::string pass = times == &work.forward_us ? "forward" : "backward";
    for (std::size_t r = 0; r < times->size(); ++r) {
      const auto& row = (*times)[r];
      if (row.size() != chunks) {
        return fail(ErrorCode::kImpossible, "expected " + pass + " times of " +
                                                std::to_string(chunks) + " chunks on stage " +
                                                std::to_string(r) + ", found " +
                                                std::to_string(row.size()));
      }
      for (std::size_t c = 0; c < row.size(); ++c) {
        if (!is_duration(row[c])) {
          return not_a_duration(
              pass + " time of stage " + std::to_string(r) + ", chunk " + std::to_string(c),
              row[c]);
        }
      }
    }
  }
  if (!is_duration(work.hop_delay_us)) return not_a_duration("hop delay", work.hop_delay_us);
  return {};
}

}  // namespace

std::string_view to_string(PipelineSchedule schedule) {
  switch (schedule) {
    case PipelineSchedule::kGpipe:
      return "gpipe";
    case PipelineSchedule::k1F1B:
      return "1f1b";
    case PipelineSchedule::kInterleaved:
      return "interleaved";
  }
  return "unknown";
}

Result<std::vector<PipelineOp>> pipeline_order(PipelineSchedule schedule, std::int64_t stages,
                                               std::int64_t chunks, std::int64_t microbatches,
                                               std::int64_t stage) {
  if (auto ok = check_sizes(schedule, stages, chunks, microbatches); !ok) {
    return Unexpected(ok.error());
  }
  if (stage < 0 || stage >= stages) {
    return fail(ErrorCode::kImpossible, "expected a stage from 0 to " + std::to_string(stages - 1) +
                                            ", found " + std::to_string(stage));
  }
  return make_order(schedule, stages, chunks, microbatches, stage);
}

Result<PipelineTimeline> pipeline_timeline(const PipelineWork& work) {
  const std::size_t p = work.forward_us.size();
  const std::size_t v = p > 0 ? work.forward_us[0].size() : 0;
  const auto m = static_cast<std::size_t>(std::max<std::int64_t>(work.microbatches, 0));
  if (auto ok = check_sizes(work.schedule, static_cast<std::int64_t>(p),
                            static_cast<std::int64_t>(v), work.microbatches);
      !ok) {
    return Unexpected(ok.error());
  }
  if (auto ok = check_times(work, v); !ok) return Unexpected(ok.error());

  // Task ids run through the stages' lists, one list after the other.
  const std::size_t depth = p * v;  // places a microbatch passes: chunk c of stage r is c p + r
  std::vector<TaskGraph::TaskId> forward(depth * m), backward(depth * m);
  TaskGraph graph;
  graph.reserve(2 * depth * m);
  PipelineTimeline timeline;
  std::vector<TaskGraph::TaskId> last_of_stage;
  for (std::size_t r = 0; r < p; ++r) {
    double busy = 0;
    std::int64_t live = 0, peak = 0;
    for (const PipelineOp& op :
         make_order(work.schedule, static_cast<std::int64_t>(p), static_cast<std::int64_t>(v),
                    work.microbatches, static_cast<std::int64_t>(r))) {
      const auto c = static_cast<std::size_t>(op.chunk);
      const double us = (op.backward ? work.backward_us : work.forward_us)[r][c];
      const auto task = graph.add_task(static_cast<std::int32_t>(r), us, 0, op.microbatch);
      (op.backward ? backward
                   : forward)[(c * p + r) * m + static_cast<std::size_t>(op.microbatch)] = task;
      busy += us;
      live += op.backward ? -1 : 1;
      peak = std::max(peak, live);
    }
    timeline.busy_us.push_back(busy);
    timeline.peak_live_forward_chunks.push_back(peak);
    last_of_stage.push_back(graph.last_on_lane(static_cast<std::int32_t>(r)));
  }
  const double hop = p > 1 ? work.hop_delay_us : 0;  // neighbours are different stages then
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t place = 1; place < depth; ++place) {
      const std::size_t here = place * m + i, before = here - m;
      graph.add_edge(forward[before], forward[here], hop);
      graph.add_edge(backward[here], backward[before], hop);
    }
    graph.add_edge(forward[(depth - 1) * m + i], backward[(depth - 1) * m + i]);
  }
  const auto schedule = run_schedule(graph);
  if (!schedule) return Unexpected(schedule.error());
  timeline.makespan_us = schedule->makespan_us();
  for (TaskGraph::TaskId last : last_of_stage) {  // every list ends with a backward
    timeline.end_of_last_backward_us.push_back(schedule->end_us[static_cast<std::size_t>(last)]);
  }
  const double busiest = *std::max_element(timeline.busy_us.begin(), timeline.busy_us.end());
  timeline.bubble_share = timeline.makespan_us > 0 ? 1 - busiest / timeline.makespan_us : 0;
  return timeline;
}

}  // namespace perfmodel::parallel
