#include "perfmodel/graph/detail/trace_ops.hpp"

#include <algorithm>
#include <limits>

#include "perfmodel/graph/detail/event_names.hpp"

namespace perfmodel {

TraceOps find_trace_ops(const Trace& trace) {
  TraceOps ops;
  ops.parent.assign(trace.host.size(), -1);
  ops.call_owner.assign(trace.host.size(), -1);
  std::vector<std::int8_t> launch_by_name(trace.names.size(), -1);
  const auto is_launch = [&](NameId name) {
    auto& known = launch_by_name[name];
    if (known < 0) known = is_launch_call(trace.names.text(name)) ? 1 : 0;
    return known == 1;
  };
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
    while (!open.empty() &&
           trace.host[static_cast<std::size_t>(open.back())].end_ns() <= event.start_ns) {
      open.pop_back();
    }
    if (!open.empty()) ops.parent[i] = open.back();
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
  // Owners come second: of two equal stamps the op may stand behind its call.
  std::size_t next = 0;
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (event.kind != HostKind::kCall || !is_launch(event.name)) continue;
    const auto top = [&](std::size_t position) -> const HostEvent& {
      return trace.host[static_cast<std::size_t>(ops.top_level[position])];
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

std::vector<TraceIteration> iterations(const Trace& trace) {
  std::vector<TraceIteration> steps;
  std::vector<std::pair<std::int64_t, std::string_view>> optimizer_ends;
  for (const HostEvent& event : trace.host) {
    if (event.kind != HostKind::kAnnotation) continue;
    const std::string_view name = trace.name(event);
    if (is_profiler_step(name)) {
      steps.push_back({std::string(name), event.start_ns, event.end_ns()});
    } else if (name.starts_with("Optimizer.step#")) {
      optimizer_ends.emplace_back(event.end_ns(), name);
    }
  }
  if (steps.empty() && optimizer_ends.size() > 1) {
    std::sort(optimizer_ends.begin(), optimizer_ends.end());
    for (std::size_t i = 1; i < optimizer_ends.size(); ++i) {
      const auto& [begin, label] = optimizer_ends[i - 1];
      steps.push_back({"after " + std::string(label), begin, optimizer_ends[i].first});
    }
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
    found[i] = iteration_at(iterations, trace.host[static_cast<std::size_t>(launch)].start_ns);
  }
  return found;
}

std::int64_t union_length(std::vector<std::pair<std::int64_t, std::int64_t>>& intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::int64_t length = 0, covered_to = std::numeric_limits<std::int64_t>::min();
  for (const auto& [begin, end] : intervals) {
    if (end <= covered_to) continue;
    length += end - std::max(begin, covered_to);
    covered_to = end;
  }
  return length;
}

}  // namespace perfmodel
