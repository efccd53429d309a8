#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perfmodel/graph/trace.hpp"

namespace perfmodel {

/// Nesting of a trace's host events, found by time.
///
/// "Inside" = same thread, starts at or after the other's start and strictly before its end.
struct TraceOps {
  std::vector<std::int32_t> parent;  ///< per host event: innermost op or annotation around it, -1
  std::vector<std::int32_t> top_level;  ///< ops in no other op, ordered by (thread, start)
  std::vector<std::int32_t>
      call_owner;  ///< per host event: for launches the position in `top_level`
                   ///< of the last op with start <= call start <= end; else -1
};
TraceOps find_trace_ops(const Trace& trace);

/// One training step of a trace.
struct TraceIteration {
  std::string name;
  std::int64_t begin_ns = 0, end_ns = 0;
};

/// ProfilerStep#N annotations; without any, the intervals between successive ends of one optimizer,
/// from `Optimizer.step#` annotations (the part before the first end is no whole step).
///
/// If several optimizers step, the most frequent one marks the steps; if they step equally often,
/// the last one does. Optimizers of one class differ by their ops. An optimizer within another is
/// part of it. An interval is no step if most of it was not recorded, between two windows of a
/// schedule.
std::vector<TraceIteration> iterations(const Trace& trace);

/// Whether two steps follow each other: ProfilerStep#3 and #4; of steps without numbers, where one
/// ends the other begins.
bool follows_at_once(const TraceIteration& step, const TraceIteration& next);

/// Index of the iteration that holds a stamp, or -1.
std::int32_t iteration_at(const std::vector<TraceIteration>& iterations, std::int64_t stamp_ns);

/// Per GPU event: iteration of its launch (work may end much later), or -1.
std::vector<std::int32_t> gpu_iterations(const Trace& trace,
                                         const std::vector<TraceIteration>& iterations);

/// Length of the union of intervals [begin, end). Sorts its argument.
std::int64_t union_length(std::vector<std::pair<std::int64_t, std::int64_t>>& intervals);

}  // namespace perfmodel
