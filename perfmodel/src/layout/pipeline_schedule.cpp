#include "pipeline_schedule.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "base/enum_name.hpp"
#include "perfmodel/detail/schedule.hpp"

namespace perfmodel::parallel {
namespace {

Result<void> check_sizes(PipelineSchedule schedule, std::int64_t stages, std::int64_t chunks,
                         std::int64_t microbatches) {
  const auto found = [](std::int64_t value) { return ", found " + std::to_string(value); };
  if (stages < 1) return decline("expected stages >= 1" + found(stages));
  if (chunks < 1) {
    return decline("expected chunks per stage >= 1" + found(chunks));
  }
  if (microbatches < 1) {
    return decline("expected microbatches >= 1" + found(microbatches));
  }
  if (schedule != PipelineSchedule::kInterleaved && chunks != 1) {
    return decline("expected one chunk per stage for " + std::string(to_string(schedule)) +
                   found(chunks));
  }
  if (schedule == PipelineSchedule::kInterleaved && microbatches % stages != 0) {
    return decline("expected microbatches to be a multiple of the " + std::to_string(stages) +
                   " stages of an interleaved pipeline" + found(microbatches));
  }
  constexpr double kMostTasks = std::numeric_limits<TaskGraph::TaskId>::max();
  if (2.0 * static_cast<double>(stages) * static_cast<double>(chunks) *
          static_cast<double>(microbatches) >
      kMostTasks) {
    return decline("expected less than 2^31 operations in a pipeline, found " +
                   std::to_string(stages) + " stages x " + std::to_string(chunks) + " chunks x " +
                   std::to_string(microbatches) + " microbatches x 2");
  }
  return {};
}

std::vector<PipelineOp> make_order(PipelineSchedule schedule, std::int64_t p, std::int64_t v,
                                   std::int64_t m, std::int64_t r) {
  const std::int64_t count = m * v;
  std::vector<PipelineOp> order;
  order.reserve(2 * count);
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

}  // namespace

std::string_view to_string(PipelineSchedule schedule) {
  static constexpr std::string_view kNames[] = {"gpipe", "1f1b", "interleaved"};
  return enum_name(kNames, schedule);
}

Result<std::vector<PipelineOp>> pipeline_order(PipelineSchedule schedule, std::int64_t stages,
                                               std::int64_t chunks, std::int64_t microbatches,
                                               std::int64_t stage) {
  PERFMODEL_TRY_TO(check_sizes(schedule, stages, chunks, microbatches));
  if (stage < 0 || stage >= stages) {
    return decline("expected a stage from 0 to " + std::to_string(stages - 1) + ", found " +
                   std::to_string(stage));
  }
  return make_order(schedule, stages, chunks, microbatches, stage);
}

}  // namespace perfmodel::parallel
