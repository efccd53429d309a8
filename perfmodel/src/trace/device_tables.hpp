#pragma once

#include <vector>

#include "perfmodel/trace_analysis.hpp"
#include "trace/intervals.hpp"
#include "trace/trace_selection.hpp"

namespace perfmodel {

/// Stamps of device work by kind.
struct DeviceIntervals {
  Intervals compute, collectives, copies, sets;
  void add(const GpuEvent& event, bool is_collective);
};

TraceAnalysis::Breakdown device_breakdown(const DeviceIntervals& work);
std::vector<TraceAnalysis::Idle> idle_causes(const Trace& trace, const TraceSelection& chosen);
std::vector<TraceAnalysis::Queue> queue_lengths(const Trace& trace, const TraceSelection& chosen);
TraceAnalysis::Launches launch_delays(const Trace& trace, const TraceSelection& chosen);
std::vector<TraceAnalysis::Copy> copies_by_kind(const Trace& trace, const TraceSelection& chosen);

/// Each moment of an iteration's window counts for the first of these: kernel, copy, set, call,
/// data loading, op, nothing.
std::vector<TraceAnalysis::Split> split_steps(const Trace& trace, const TraceSelection& chosen);

/// Fills the means that Kineto's estimates of kernels give.
void mean_occupancy(const Trace& trace, const TraceSelection& chosen, TraceAnalysis& analysis);

}  // namespace perfmodel
