#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "core/call_waits.hpp"
#include "perfmodel/detail/schedule.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"

namespace perfmodel::accuracy {

/// Baseline: the longest path of one iteration as Holistic Trace Analysis builds it. Host time
/// counts inside of top-level ops (calls and their waits included); between them it weighs nothing,
/// and threads do not wait for each other. A kernel follows its launch if its stream was idle, else
/// the kernel before it; a synchronising call ends after the kernels launched before it.
inline double hta_path_us(const Trace& trace, const TraceIteration& step) {
  const TraceOps ops = find_trace_ops(trace);
  const CallWork work = work_of_calls(trace);
  const auto us = [](std::int64_t ns) { return static_cast<double>(ns) / 1e3; };
  TaskGraph graph;
  // Host lanes: per thread the stretches between the borders of calls inside of top-level ops.
  std::vector<TaskGraph::TaskId> begin_of(trace.host.size(), -1), end_of(trace.host.size(), -1);
  std::vector<std::size_t> synchronising;
  std::int64_t inside_until = 0, cursor = 0;
  std::int32_t thread = -1;
  std::size_t next_top = 0;
  const auto advance = [&](std::int64_t stamp) {
    stamp = std::min(stamp, inside_until);
    if (stamp > cursor) graph.add_task(thread, us(stamp - cursor));
    cursor = std::max(cursor, stamp);
  };
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (event.thread != thread) {
      if (thread >= 0) advance(inside_until);
      thread = event.thread;
      inside_until = cursor = 0;
    }
    const bool top =
        next_top < ops.top_level.size() && ops.top_level[next_top] == static_cast<std::int32_t>(i);
    next_top += top;
    if (event.start_ns < step.begin_ns || event.start_ns >= step.end_ns) continue;
    if (!top && event.kind != HostKind::kCall) continue;
    advance(event.start_ns);
    if (event.start_ns >= inside_until) {
      advance(inside_until);
      inside_until = cursor = event.start_ns;
    }
    if (top || event.start_ns >= inside_until) {
      inside_until = std::max(inside_until, event.end_ns());
    }
    if (event.kind != HostKind::kCall) continue;
    begin_of[i] = graph.add_task(thread, 0);
    inside_until = std::max(inside_until, event.end_ns());
    advance(event.end_ns());
    end_of[i] = graph.add_task(thread, 0);
    const SyncKind kind = sync_kind(trace.name(event));
    if (kind == SyncKind::kDevice || kind == SyncKind::kStream) synchronising.push_back(i);
  }
  advance(inside_until);
  // Device lanes.
  struct Last {
    std::int64_t launched_ns;
    TaskGraph::TaskId task;
    std::int64_t end_ns;
  };
  std::map<std::int64_t, std::vector<Last>> streams;
  for (const GpuEvent& event : trace.gpu) {
    if (event.launch < 0 || begin_of[static_cast<std::size_t>(event.launch)] < 0) continue;
    const HostEvent& call = trace.host[static_cast<std::size_t>(event.launch)];
    auto& before = streams[event.stream];
    const auto task = graph.add_task(TaskGraph::kNoLane, us(event.duration_ns));
    if (!before.empty() && before.back().end_ns > call.start_ns) {
      graph.add_edge(before.back().task, task,
                     std::max(0.0, us(event.start_ns - before.back().end_ns)));
    } else {
      graph.add_edge(begin_of[static_cast<std::size_t>(event.launch)], task,
                     std::max(0.0, us(event.start_ns - call.start_ns)));
    }
    before.push_back({call.start_ns, task, event.end_ns()});
  }
  for (std::size_t call : synchronising) {
    for (const auto& [stream, tasks] : streams) {
      const Last* last = nullptr;
      for (const Last& at : tasks) {
        if (at.launched_ns < trace.host[call].start_ns && at.end_ns <= trace.host[call].end_ns()) {
          last = &at;
        }
      }
      if (last) graph.add_edge(last->task, end_of[call]);
    }
  }
  return run_schedule(graph).value().makespan_us();
}

}  // namespace perfmodel::accuracy
