#pragma once

#include <vector>

#include "perfmodel/trace_analysis.hpp"
#include "trace/trace_selection.hpp"

namespace perfmodel {

/// Bandwidth of copies and sets by kind, one point per change.
std::vector<TraceAnalysis::BandwidthPoint> copy_bandwidth(const Trace& trace,
                                                          const TraceSelection& chosen);

/// Counters of CUPTI over the ranges that begin in the chosen iterations.
std::vector<TraceAnalysis::Counter> counter_table(const Trace& trace, const TraceSelection& chosen);

}  // namespace perfmodel
