#include "trace/device_tables.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "base/sort_runs.hpp"
#include "base/statistics.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kLongestKernelWaitNs = 30'000;

double to_us(std::int64_t ns) { return static_cast<double>(ns) / 1e3; }

const HostEvent* launch_of(const Trace& trace, const GpuEvent& event) {
  return event.launch < 0 ? nullptr : &trace.host[event.launch];
}

Intervals joined(std::initializer_list<const Intervals*> parts) {
  Intervals all;
  for (const Intervals* part : parts) all.insert(all.end(), part->begin(), part->end());
  return merged(std::move(all));
}

struct QueueChange {
  std::int64_t time_ns = 0;
  int change = 0;  // a launch before a start at the same time
};

TraceAnalysis::Queue queue_of(std::vector<QueueChange>& changes) {
  sort_runs(changes, [](const QueueChange& a, const QueueChange& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.change > b.change;
  });
  TraceAnalysis::Queue made{.changes = changes.size()};
  std::int64_t length = 0, at_limit_ns = 0;
  double sum = 0;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    length += changes[i].change;
    sum += static_cast<double>(length);
    made.max = std::max(made.max, length);
    if (length >= TraceAnalysis::kQueueLimit && i + 1 < changes.size()) {
      at_limit_ns += changes[i + 1].time_ns - changes[i].time_ns;
    }
  }
  if (!changes.empty()) made.mean = sum / static_cast<double>(changes.size());
  made.at_limit_us = to_us(at_limit_ns);
  return made;
}

bool loads_data(std::string_view name) {
  return name.starts_with("enumerate(DataLoader)") || name.starts_with("enumerate(DataPipe)");
}

// Removes `part` from `free` and returns the length that was removed.
double take(Intervals& free, Intervals part) {
  const Intervals mine = merged(std::move(part));
  const std::int64_t length = total_length(common(free, mine));
  free = without(free, mine);
  return to_us(length);
}

// Windows do not overlap and are in order; an interval goes to all that it touches.
using Windows = std::vector<std::pair<std::int64_t, std::int64_t>>;

void hand_out(const Windows& windows, std::vector<Intervals>& parts, std::int64_t begin,
              std::int64_t end) {
  auto at = std::ranges::upper_bound(windows, begin, {},
                                     [](const auto& window) { return window.second; });
  for (; at != windows.end() && at->first < end; ++at) {
    parts[at - windows.begin()].emplace_back(begin, end);
  }
}

}  // namespace

void DeviceIntervals::add(const GpuEvent& event, bool is_collective) {
  Intervals& of_kind = event.kind == GpuKind::kCopy  ? copies
                       : event.kind == GpuKind::kSet ? sets
                       : is_collective               ? collectives
                                                     : compute;
  of_kind.emplace_back(event.start_ns, event.end_ns());
}

TraceAnalysis::Breakdown device_breakdown(const DeviceIntervals& work) {
  const Intervals kernels = merged(work.compute), copies = merged(work.copies),
                  collectives = merged(work.collectives);
  const Intervals compute = joined({&work.compute, &work.sets});
  const Intervals busy = joined({&work.compute, &work.sets, &work.collectives, &work.copies});
  TraceAnalysis::Breakdown made;
  made.compute_us = to_us(total_length(compute));
  made.compute_kernel_us = to_us(total_length(kernels));
  made.comm_us = to_us(total_length(collectives));
  made.exposed_comm_us = to_us(total_length(without(collectives, compute)));
  made.memcpy_us = to_us(total_length(copies));
  made.exposed_memcpy_us = to_us(total_length(without(without(copies, compute), collectives)));
  made.busy_us = to_us(total_length(busy));
  std::int64_t first = 0, last = 0;
  bool any = false;
  for (const Intervals* part : {&work.compute, &work.sets, &work.collectives, &work.copies}) {
    for (const auto& [begin, end] : *part) {
      first = any ? std::min(first, begin) : begin;
      last = any ? std::max(last, end) : end;
      any = true;
    }
  }
  made.span_us = to_us(last - first);
  made.idle_us = to_us(last - first - total_length(busy));
  if (made.comm_us > 0) {
    made.comm_overlap_fraction = to_us(total_length(common(kernels, collectives))) / made.comm_us;
  }
  return made;
}

std::vector<TraceAnalysis::Idle> idle_causes(const Trace& trace, const TraceSelection& chosen) {
  std::vector<TraceAnalysis::Idle> made;
  const GpuEvent* previous = nullptr;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {  // by device, stream and start
    if (!chosen.has_gpu(i)) continue;
    const GpuEvent& event = trace.gpu[i];
    if (!previous || previous->device != event.device || previous->stream != event.stream) {
      made.push_back({.device = event.device, .stream = event.stream});
    } else if (const std::int64_t gap = event.start_ns - previous->end_ns(); gap > 0) {
      const HostEvent* launch = launch_of(trace, event);
      TraceAnalysis::Idle& idle = made.back();
      (launch && launch->start_ns > previous->end_ns() ? idle.host_wait_us
       : gap < kLongestKernelWaitNs                    ? idle.kernel_wait_us
                                                       : idle.other_us) += to_us(gap);
    }
    // A task that runs into the next one and beyond it still holds the stream.
    if (!previous || previous->device != event.device || previous->stream != event.stream ||
        event.end_ns() >= previous->end_ns()) {
      previous = &event;
    }
  }
  return made;
}

std::vector<TraceAnalysis::Queue> queue_lengths(const Trace& trace, const TraceSelection& chosen) {
  std::vector<TraceAnalysis::Queue> made;
  std::vector<QueueChange> changes;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    const GpuEvent& event = trace.gpu[i];
    const HostEvent* launch = launch_of(trace, event);
    if (launch && chosen.has_gpu(i)) {
      changes.push_back({launch->start_ns, 1});
      changes.push_back({event.start_ns, -1});
    }
    const bool last_of_stream = i + 1 == trace.gpu.size() ||
                                trace.gpu[i + 1].device != event.device ||
                                trace.gpu[i + 1].stream != event.stream;
    if (!last_of_stream || changes.empty()) continue;
    made.push_back(queue_of(changes));
    made.back().device = event.device;
    made.back().stream = event.stream;
    changes.clear();
  }
  return made;
}

TraceAnalysis::Launches launch_delays(const Trace& trace, const TraceSelection& chosen) {
  std::map<std::int32_t, std::int64_t> first_start;  // per call: a graph has many tasks
  TraceAnalysis::Launches made;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    const GpuEvent& event = trace.gpu[i];
    const HostEvent* launch = launch_of(trace, event);
    if (!launch || !chosen.has_gpu(i)) continue;
    made.shorter_than_launch += event.duration_ns < launch->duration_ns;
    const auto [at, added] = first_start.try_emplace(event.launch, event.start_ns);
    if (!added) at->second = std::min(at->second, event.start_ns);
  }
  std::vector<double> delays;
  for (const auto& [launch, start] : first_start) {
    const std::int64_t called = trace.host[launch].end_ns();
    delays.push_back(to_us(std::max<std::int64_t>(0, start - called)));
  }
  made.count = delays.size();
  if (delays.empty()) return made;
  std::ranges::sort(delays);
  for (const double delay : delays) made.mean_us += delay / static_cast<double>(delays.size());
  made.median_us = median_of(delays);
  made.max_us = delays.back();
  return made;
}

std::vector<TraceAnalysis::Copy> copies_by_kind(const Trace& trace, const TraceSelection& chosen) {
  std::map<NameId, TraceAnalysis::Copy> by_name;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    const GpuEvent& event = trace.gpu[i];
    if (event.kind == GpuKind::kKernel || !chosen.has_gpu(i)) continue;
    TraceAnalysis::Copy& copy = by_name[event.name];
    ++copy.count;
    copy.total_us += to_us(event.duration_ns);
    copy.bytes += event.bytes;
  }
  std::vector<TraceAnalysis::Copy> made;
  for (auto& [name, copy] : by_name) {
    copy.kind = trace.names.text(name);
    if (copy.bytes > 0 && copy.total_us > 0) {
      copy.gb_per_s = static_cast<double>(copy.bytes) / copy.total_us / 1e3;
    }
    made.push_back(std::move(copy));
  }
  std::ranges::stable_sort(made, std::ranges::greater{}, &TraceAnalysis::Copy::total_us);
  return made;
}

std::vector<TraceAnalysis::Split> split_steps(const Trace& trace, const TraceSelection& chosen) {
  const auto& steps = chosen.steps;
  std::vector<std::int64_t> device_end(steps.size(), 0);
  std::vector<DeviceIntervals> launched(steps.size());
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    if (chosen.step_of_gpu[i] < 0) continue;
    const auto step = chosen.step_of_gpu[i];
    device_end[step] = std::max(device_end[step], trace.gpu[i].end_ns());
    launched[step].add(trace.gpu[i], chosen.is_collective[i]);
  }
  Windows windows;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::int64_t begin =
        windows.empty() ? steps[i].begin_ns : std::max(steps[i].begin_ns, windows.back().second);
    windows.emplace_back(begin, std::max({begin, steps[i].end_ns, device_end[i]}));
  }
  enum Part { kKernels, kCopies, kSets, kCalls, kLoading, kOps, kParts };
  std::array<std::vector<Intervals>, kParts> parts;
  parts.fill(std::vector<Intervals>(steps.size()));
  for (const GpuEvent& event : trace.gpu) {
    const Part part = event.kind == GpuKind::kCopy  ? kCopies
                      : event.kind == GpuKind::kSet ? kSets
                                                    : kKernels;
    hand_out(windows, parts[part], event.start_ns, event.end_ns());
  }
  std::int64_t covered_to = 0;
  std::int32_t thread = -1;
  for (const HostEvent& event : trace.host) {
    const bool loading = loads_data(trace.name(event));
    if (event.kind == HostKind::kAnnotation && !loading) continue;
    const Part part = loading ? kLoading : event.kind == HostKind::kCall ? kCalls : kOps;
    if (part == kOps) {  // an op within another op adds nothing
      if (event.thread == thread && event.end_ns() <= covered_to) continue;
      covered_to = event.thread == thread ? std::max(covered_to, event.end_ns()) : event.end_ns();
      thread = event.thread;
    }
    hand_out(windows, parts[part], event.start_ns, event.end_ns());
  }
  std::vector<TraceAnalysis::Split> made;
  for (std::size_t i = chosen.first; i < chosen.last; ++i) {
    Intervals free = merged({windows[i]});
    TraceAnalysis::Split split{.window_us = to_us(windows[i].second - windows[i].first),
                               .breakdown = device_breakdown(launched[i])};
    split.kernel_us = take(free, std::move(parts[kKernels][i]));
    split.memcpy_us = take(free, std::move(parts[kCopies][i]));
    split.memset_us = take(free, std::move(parts[kSets][i]));
    split.runtime_us = take(free, std::move(parts[kCalls][i]));
    split.data_loader_us = take(free, std::move(parts[kLoading][i]));
    split.op_us = take(free, std::move(parts[kOps][i]));
    split.other_us = to_us(total_length(free));
    made.push_back(split);
  }
  return made;
}

void mean_occupancy(const Trace& trace, const TraceSelection& chosen, TraceAnalysis& analysis) {
  double occupancy = 0, occupancy_time = 0, blocks = 0, efficiency = 0, blocks_time = 0;
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    const GpuEvent& event = trace.gpu[i];
    if (event.kind != GpuKind::kKernel || !chosen.has_gpu(i)) continue;
    const double us = to_us(event.duration_ns);
    if (event.occupancy_percent >= 0) {
      occupancy += us * event.occupancy_percent;
      occupancy_time += us;
    }
    if (event.blocks_per_sm >= 0) {
      blocks += us * event.blocks_per_sm;
      efficiency += us * std::min(1.0F, event.blocks_per_sm);
      blocks_time += us;
    }
  }
  if (occupancy_time > 0) analysis.occupancy_percent = occupancy / occupancy_time;
  if (blocks_time > 0) {
    analysis.blocks_per_sm = blocks / blocks_time;
    analysis.sm_efficiency_percent = 100 * efficiency / blocks_time;
  }
}

}  // namespace perfmodel
