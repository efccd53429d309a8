#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "perfmodel/graph/detail/trace_ops.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Which events of a trace count: all, or only some iterations. Device work belongs to the
/// iteration that launched it, host events to the one that they start in.
struct TraceSelection {
  std::vector<TraceIteration> steps;      ///< all steps of the trace
  std::vector<std::int32_t> step_of_gpu;  ///< per device event; -1: launched in none
  std::vector<bool> is_collective;        ///< per device event: a kernel between ranks
  std::size_t first = 0, last = 0;        ///< iterations [first, last) count
  bool restricted = false;                ///< else everything does

  bool has_step(std::int32_t step) const {
    return step >= static_cast<std::int32_t>(first) && step < static_cast<std::int32_t>(last);
  }
  bool has_gpu(std::size_t event) const { return !restricted || has_step(step_of_gpu[event]); }
  bool has_host(const HostEvent& event) const {
    return !restricted || has_step(iteration_at(steps, event.start_ns));
  }
};

/// Error: the window is empty, or ends after the trace's last iteration.
Result<void> check_window(const Trace& trace, const TraceSelection& selection,
                          const std::optional<std::pair<std::size_t, std::size_t>>& window);

/// `window`: iterations [first, last) of the trace; empty: all events.
TraceSelection select_events(const Trace& trace,
                             const std::optional<std::pair<std::size_t, std::size_t>>& window);

}  // namespace perfmodel
