#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline_schedule.hpp"

namespace perfmodel::parallel {

/// A pipeline as numbers in flat arrays: chunk c of stage r lies at c stages + r, model order.
struct PipelineTimes {
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
  std::int64_t stages = 1, chunks = 1, microbatches = 1;
  std::span<const double> forward_us, backward_us;  ///< stages * chunks each
  double hop_us = 0;
};

struct PipelineEnds {
  double makespan_us = 0;
  std::vector<double> last_backward_us;  ///< per stage
};

/// What `pipeline_timeline` gives, without its task graph: a stage works off its list as far as its
/// predecessors allow, turn by turn. Beyond `most_operations` the schedule is run for few
/// microbatches and for four rounds of `stages` more; the rest continues at that pace, that of the
/// slowest cycle of stages (within 1 % where hops are short beside stages). Sizes as
/// `pipeline_order` takes them (not checked).
PipelineEnds pipeline_ends(const PipelineTimes& times, std::int64_t most_operations = 8192);

}  // namespace perfmodel::parallel
