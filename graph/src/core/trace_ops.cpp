#include "perfmodel/graph/detail/trace_ops.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <unordered_map>

#include "base/sort_runs.hpp"
#include "perfmodel/graph/detail/event_names.hpp"

namespace perfmodel {
namespace {

// Stamps of whole microseconds may let an op end after the one around it.
constexpr std::int64_t kEndSlackNs = 1'000;

// Whether an event that begins within another one is part of it. A call belongs to the op in which
// it begins.
bool ends_within(const HostEvent& event, const HostEvent& outer) {
  return event.kind == HostKind::kCall || event.start_ns >= outer.end_ns() ||
         event.end_ns() <= outer.end_ns() + kEndSlackNs;
}

}  // namespace

TraceOps find_trace_ops(const Trace& trace) {
  TraceOps ops;
  ops.parent.assign(trace.host.size(), -1);
  ops.call_owner.assign(trace.host.size(), -1);
  std::vector<std::int32_t> open;
  std::int32_t thread = -1;
  std::int64_t top_end = 0;
  bool has_top = false;
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (event.thread != thread) {
      thread = event.thread;
      open.clear();
      has_top = false;
    }
    const auto outer = [&](std::size_t place) -> const HostEvent& {
      return trace.host[open[place]];
    };
    while (!open.empty() && outer(open.size() - 1).end_ns() <= event.start_ns) open.pop_back();
    for (std::size_t place = open.size(); place-- > 0;) {
      if (!ends_within(event, outer(place))) continue;
      ops.parent[i] = open[place];
      break;
    }
    if (event.kind == HostKind::kOp) {
      if (!has_top || event.start_ns >= top_end) {
        ops.top_level.push_back(static_cast<std::int32_t>(i));
        has_top = true;
        top_end = event.end_ns();
      }
      top_end = std::max(top_end, event.end_ns());
    }
    if (event.kind != HostKind::kCall) open.push_back(static_cast<std::int32_t>(i));
  }
  // Owners come second: if the stamps are equal, the op may come after its call.
  std::size_t next = 0;
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (!event.launches) continue;
    const auto top = [&](std::size_t position) -> const HostEvent& {
      return trace.host[ops.top_level[position]];
    };
    while (next < ops.top_level.size() && std::pair(top(next).thread, top(next).start_ns) <=
                                              std::pair(event.thread, event.start_ns)) {
      ++next;
    }
    if (next == 0) continue;
    const HostEvent& owner = top(next - 1);
    if (owner.thread == event.thread && event.start_ns <= owner.end_ns()) {
      ops.call_owner[i] = static_cast<std::int32_t>(next) - 1;
    }
  }
  return ops;
}

namespace {

// One call of an optimizer, with its ops, which tell optimizers of one class apart.
struct OptimizerStep {
  std::int64_t start_ns = 0, end_ns = 0;
  NameId name = 0;
  std::uint64_t ops = 0;
};

std::vector<OptimizerStep> optimizer_steps(const Trace& trace) {
  std::vector<OptimizerStep> made;
  std::int32_t thread = -1;
  std::int64_t until = 0;  // end of the optimizer at hand
  for (const HostEvent& event : trace.host) {
    const bool inside = event.thread == thread && event.start_ns < until;
    if (inside && event.kind == HostKind::kOp) {
      made.back().ops = hash_mix(made.back().ops, event.name);
      made.back().ops = hash_mix(made.back().ops, static_cast<std::uint64_t>(event.arguments));
    }
    if (inside || event.kind != HostKind::kAnnotation ||
        !trace.name(event).starts_with("Optimizer.step#")) {
      continue;
    }
    thread = event.thread;
    until = event.end_ns();
    made.push_back({event.start_ns, until, event.name});
  }
  std::ranges::stable_sort(made, {}, &OptimizerStep::end_ns);
  return made;
}

// Keeps only the steps of the optimizer that steps most often.
void keep_one_optimizer(std::vector<OptimizerStep>& steps) {
  std::unordered_map<NameId, std::size_t> counts;
  for (const OptimizerStep& step : steps) ++counts[step.name];
  NameId best = steps.back().name;
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (counts[step->name] > counts[best]) best = step->name;
  }
  std::erase_if(steps, [best](const OptimizerStep& step) { return step.name != best; });
  // Several optimizers of one class take turns: their ops repeat with a period, and differ in it.
  constexpr std::size_t kMostOptimizers = 16;
  for (std::size_t period = 1; period <= kMostOptimizers && 2 * period <= steps.size(); ++period) {
    bool repeats = true;
    for (std::size_t i = period; repeats && i < steps.size(); ++i) {
      repeats = steps[i].ops == steps[i - period].ops;
    }
    if (!repeats) continue;
    std::size_t at = 0;
    const std::size_t last = (steps.size() - 1) % period;
    std::erase_if(steps, [&](const OptimizerStep&) { return at++ % period != last; });
    return;
  }
}

using Stretches = std::vector<std::pair<std::int64_t, std::int64_t>>;

// When any host event runs: stretches in the order of time that do not touch.
Stretches busy_stretches(const Trace& trace) {
  Stretches events;
  for (const HostEvent& event : trace.host) events.emplace_back(event.start_ns, event.end_ns());
  sort_runs(events);
  Stretches made;
  for (const auto& [start, end] : events) {
    if (made.empty() || start > made.back().second) {
      made.emplace_back(start, end);
    } else {
      made.back().second = std::max(made.back().second, end);
    }
  }
  return made;
}

// The longest part of an interval in which no host event runs.
std::int64_t longest_hole(const Stretches& busy, std::int64_t begin_ns, std::int64_t end_ns) {
  std::int64_t longest = 0, covered_to = begin_ns;
  auto at =
      std::ranges::lower_bound(busy, begin_ns, {}, [](const auto& span) { return span.second; });
  for (; at != busy.end() && at->first < end_ns; ++at) {
    longest = std::max(longest, at->first - covered_to);
    covered_to = std::max(covered_to, at->second);
  }
  return std::max(longest, end_ns - covered_to);
}

void leave_out_borders_of_windows(const Trace& trace, std::vector<TraceIteration>& steps) {
  constexpr std::size_t kLeastSteps = 3;
  constexpr std::int64_t kLong = 4;  // times the usual step
  if (steps.size() < kLeastSteps) return;
  std::vector<std::int64_t> lengths;
  for (const TraceIteration& step : steps) lengths.push_back(step.end_ns - step.begin_ns);
  const auto middle = lengths.begin() + static_cast<std::ptrdiff_t>((lengths.size() - 1) / 2);
  std::nth_element(lengths.begin(), middle, lengths.end());
  const auto is_long = [usual = *middle](const TraceIteration& step) {
    return step.end_ns - step.begin_ns > kLong * usual;
  };
  if (std::ranges::none_of(steps, is_long)) return;
  const Stretches busy = busy_stretches(trace);
  std::erase_if(steps, [&](const TraceIteration& step) {
    return is_long(step) &&
           2 * longest_hole(busy, step.begin_ns, step.end_ns) > step.end_ns - step.begin_ns;
  });
}

// Reads the number of "ProfilerStep#12"; -1: it has none.
std::int64_t step_number(std::string_view name) {
  const std::size_t mark = name.find('#');
  if (!is_profiler_step(name) || mark == name.npos) return -1;
  std::int64_t number = -1;
  std::from_chars(name.data() + mark + 1, name.data() + name.size(), number);
  return number;
}

}  // namespace

bool follows_at_once(const TraceIteration& step, const TraceIteration& next) {
  const std::int64_t number = step_number(step.name), after = step_number(next.name);
  return number < 0 || after < 0 ? next.begin_ns <= step.end_ns : after == number + 1;
}

std::vector<TraceIteration> iterations(const Trace& trace) {
  std::vector<TraceIteration> steps;
  for (const HostEvent& event : trace.host) {
    if (event.kind != HostKind::kAnnotation) continue;
    const std::string_view name = trace.name(event);
    if (is_profiler_step(name)) {
      steps.push_back({std::string(name), event.start_ns, event.end_ns()});
    }
  }
  if (steps.empty()) {
    std::vector<OptimizerStep> ends = optimizer_steps(trace);
    if (ends.size() > 1) keep_one_optimizer(ends);
    for (std::size_t i = 1; i < ends.size(); ++i) {
      steps.push_back({"after " + std::string(trace.names.text(ends[i - 1].name)),
                       ends[i - 1].end_ns, ends[i].end_ns});
    }
    leave_out_borders_of_windows(trace, steps);
  }
  std::sort(steps.begin(), steps.end(), [](const TraceIteration& a, const TraceIteration& b) {
    return a.begin_ns < b.begin_ns;
  });
  return steps;
}

std::int32_t iteration_at(const std::vector<TraceIteration>& iterations, std::int64_t stamp_ns) {
  const auto after = std::upper_bound(
      iterations.begin(), iterations.end(), stamp_ns,
      [](std::int64_t stamp, const TraceIteration& step) { return stamp < step.begin_ns; });
  if (after == iterations.begin()) return -1;
  const auto at = after - 1;
  return stamp_ns < at->end_ns ? static_cast<std::int32_t>(at - iterations.begin()) : -1;
}

std::vector<std::int32_t> gpu_iterations(const Trace& trace,
                                         const std::vector<TraceIteration>& iterations) {
  std::vector<std::int32_t> found(trace.gpu.size(), -1);
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    const std::int32_t launch = trace.gpu[i].launch;
    if (launch < 0) continue;
    found[i] = iteration_at(iterations, trace.host[launch].start_ns);
  }
  return found;
}

std::int64_t union_length(std::vector<std::pair<std::int64_t, std::int64_t>>& intervals) {
  sort_runs(intervals);
  std::int64_t length = 0, covered_to = std::numeric_limits<std::int64_t>::min();
  for (const auto& [begin, end] : intervals) {
    if (end <= covered_to) continue;
    length += end - std::max(begin, covered_to);
    covered_to = end;
  }
  return length;
}

}  // namespace perfmodel
