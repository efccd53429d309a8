#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline_schedule.hpp"

namespace perfmodel::parallel {

/// A pipeline as numbers in flat arrays: chunk c of stage r is at c stages + r, in model order.
struct PipelineTimes {
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
  std::int64_t stages = 1, chunks = 1, microbatches = 1;
  std::span<const double> forward_us, backward_us;  ///< stages * chunks each
  double hop_us = 0;
};

struct PipelineEnds {
  double makespan_us = 0;
  std::vector<double> last_backward_us;        ///< per stage
  std::vector<double> chunk_last_backward_us;  ///< per chunk, in model order
};

/// A stage works off its list (`pipeline_order`) as far as its predecessors allow, turn by turn:
/// the same microbatch one chunk earlier in the model, or later in backward, `hop_us` later if that
/// was on another stage. The first backward of a microbatch follows its last forward. Closed forms
/// for equal stages without hops: GPipe and 1F1B (m + p - 1)(F + B); interleaved m(F + B) + (p-1)(F
/// + B)/v, F and B per stage and microbatch.
///
///  Beyond `most_operations` the schedule is run for few
/// microbatches and for four rounds of `stages` more; the rest continues at that pace, the slowest
/// cycle's (within 1 % if hops are short compared with stages). Sizes as `pipeline_order` takes
/// them (not checked).
PipelineEnds pipeline_ends(const PipelineTimes& times, std::int64_t most_operations = 8192);

}  // namespace perfmodel::parallel
