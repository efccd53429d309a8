#include "trace/trace_selection.hpp"

#include <fmt/format.h>

#include "core/collective_names.hpp"
#include "perfmodel/graph/detail/event_names.hpp"

namespace perfmodel {
namespace {

std::vector<bool> find_collectives(const Trace& trace) {
  CollectiveNames is_collective(trace.names);
  std::vector<bool> made;
  made.reserve(trace.gpu.size());
  for (const GpuEvent& event : trace.gpu) {
    made.push_back(event.kind == GpuKind::kKernel && is_collective(event.name));
  }
  return made;
}

}  // namespace

TraceSelection select_events(const Trace& trace,
                             const std::optional<std::pair<std::size_t, std::size_t>>& window) {
  TraceSelection made;
  made.steps = iterations(trace);
  made.step_of_gpu = gpu_iterations(trace, made.steps);
  made.is_collective = find_collectives(trace);
  made.first = window ? window->first : 0;
  made.last = window ? window->second : made.steps.size();
  made.restricted = window.has_value();
  return made;
}

Result<void> check_window(const Trace& trace, const TraceSelection& selection,
                          const std::optional<std::pair<std::size_t, std::size_t>>& window) {
  const std::size_t steps = selection.steps.size();
  if (!window || (window->first < window->second && window->second <= steps)) return {};
  return decline(fmt::format("expected iterations within 0:{}, found {}:{}", steps, window->first,
                             window->second),
                 trace.source);
}

}  // namespace perfmodel
