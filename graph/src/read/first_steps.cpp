#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "base/secrets.hpp"
#include "check_recording.hpp"
#include "core/collective_names.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kMostFirstSteps = 2;

/// Elements that each collective of a step sends, sorted; -1: not recorded.
using Collectives = std::vector<std::int64_t>;

std::vector<Collectives> collectives_of(const Trace& trace,
                                        const std::vector<TraceIteration>& steps) {
  const std::vector<std::int32_t> step_of = gpu_iterations(trace, steps);
  std::vector<Collectives> made(steps.size());
  CollectiveNames is_collective(trace.names);
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    const GpuEvent& event = trace.gpu[i];
    if (step_of[i] < 0 || event.kind != GpuKind::kKernel) continue;
    if (!is_collective(event.name)) continue;
    made[static_cast<std::size_t>(step_of[i])].push_back(
        event.collective < 0
            ? -1
            : trace.collectives[static_cast<std::size_t>(event.collective)].in_elements);
  }
  for (Collectives& step : made) std::ranges::sort(step);
  return made;
}

/// The collectives that at least half of the steps send, and at least two; null: none are. If two
/// halves differ, the last step's, as first steps come first.
const Collectives* typical(const std::vector<Collectives>& steps) {
  std::map<Collectives, std::size_t> counts;
  for (const Collectives& step : steps) ++counts[step];
  const auto most = std::ranges::max_element(counts, {}, [&](const auto& entry) {
    return std::pair(entry.second, entry.first == steps.back());
  });
  if (most->second < 2 || 2 * most->second < steps.size()) return nullptr;
  return &*std::ranges::find(steps, most->first);
}

/// How many leading steps talk, but not as most steps do; 0 if they are more than DDP has.
std::size_t first_steps(const std::vector<Collectives>& steps) {
  const Collectives* most = typical(steps);
  if (!most || most->empty()) return 0;
  std::size_t first = 0;
  while (!steps[first].empty() && steps[first] != *most) ++first;
  return first > kMostFirstSteps || steps[first] != *most ? 0 : first;
}

}  // namespace

void leave_out_first_steps(Trace& trace) {
  const std::vector<TraceIteration> steps = iterations(trace);
  if (steps.size() < 3 || !is_profiler_step(steps.front().name)) return;
  const std::vector<Collectives> collectives = collectives_of(trace, steps);
  const std::size_t count = first_steps(collectives);
  if (count == 0) return;
  std::vector<bool> leave_out(trace.host.size(), false);
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    leave_out[i] = event.kind == HostKind::kAnnotation && is_profiler_step(trace.name(event)) &&
                   event.start_ns < steps[count].begin_ns;
  }
  leave_out_host_events(trace, leave_out);
  trace.recording.say(
      "first_steps", count,
      fmt::format("{} of {} steps before {} {} left out: the collectives are not the ones of most "
                  "steps ({} and {} per step), as in DDP until its buckets are rebuilt",
                  count, steps.size(), shown_text(steps[count].name), count == 1 ? "is" : "are",
                  collectives.front().size(), collectives[count].size()));
}

}  // namespace perfmodel
