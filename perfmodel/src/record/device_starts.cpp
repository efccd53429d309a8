#include "device_starts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/sort_runs.hpp"
#include "core/collective_names.hpp"
#include "microseconds.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"

namespace perfmodel {
namespace {

// Borders between normal delays and waits, in nanoseconds. Ten times the border of late starts
// changes no public trace.
constexpr std::int64_t kLateNs = 5'000;         // a start this much later than its known reasons
constexpr std::int64_t kEventReachNs = 15'000;  // awaited end this close before a late start
constexpr std::int64_t kLargeCopyBytes = 64 * 1024;
// Typical starts: work outside of these limits was held by something else. Nodes of one graph
// follow closely: a longer gap between them means a node that was not recorded.
constexpr std::int64_t kLatencyLowNs = -20'000, kLatencyHighNs = 20'000, kGapHighNs = 10'000;
constexpr std::int64_t kNodeGapHighNs = 5'000;
constexpr std::int64_t kIdleMarginNs = 5'000;
// Defaults without samples (measured: launch -1 to 8, blocking copy 8 to 12, gap 1.1 to 2.2 us,
// awaited end to start 1.2 to 5).
constexpr double kLatencyUs = 1.5, kBlockingLatencyUs = 10, kGapUs = 1.3, kEventLagUs = 2;
constexpr double kMostStagingUs = 1000;  // large pageable buffers (measured: 370 to 610)
// A synchronising call ends 1 to 14 us after what it waited for.
constexpr std::int64_t kTailNs = 50'000;
constexpr double kSyncOwnUs = 5;

}  // namespace

void DeviceStarts::Typical::add(std::uint64_t key, std::int64_t ns) {
  for (Sum* sum : {&by_key_[key], &all_}) {
    sum->us += us(ns);
    ++sum->count;
  }
}

double DeviceStarts::Typical::mean(std::uint64_t key, double fallback) const {
  const auto found = by_key_.find(key);
  const Sum& sum = found != by_key_.end() ? found->second : all_;
  return sum.count > 0 ? sum.us / static_cast<double>(sum.count) : fallback;
}

DeviceStarts::DeviceStarts(const Trace& trace, const std::vector<CallWait>& waits,
                           const CallWork& work)
    : trace_(trace), call_waits_(waits), work_(work) {
  sort_launches();
  lay_out();
  note_calls();
  find_event_waits();
  measure();
  for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
    explain_late_start(static_cast<std::int32_t>(i));
  }
  find_tails();
}

// ---- what was launched when --------------------------------------------------------------------

void DeviceStarts::sort_launches() {
  is_collective_.assign(trace_.gpu.size(), false);
  CollectiveNames is_collective(trace_.names);
  for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
    const GpuEvent& event = trace_.gpu[i];
    is_collective_[i] = event.kind == GpuKind::kKernel && is_collective(event.name);
    Stream& stream = streams_[{event.device, event.stream}];
    stream.tasks.push_back(static_cast<std::int32_t>(i));
    if (event.launch >= 0) stream.launched.push_back(static_cast<std::int32_t>(i));
  }
  for (auto& [key, stream] : streams_) {
    sort_runs(stream.launched, [&](std::int32_t a, std::int32_t b) {
      return launch_of(a).start_ns < launch_of(b).start_ns;
    });
    for (std::int32_t task : stream.launched) {
      stream.launch_start_ns.push_back(launch_of(task).start_ns);
      if (stream.queued.empty() || !same_launch(stream.queued.back(), task)) {
        stream.queued.push_back(task);
      } else if (gpu(task).end_ns() > gpu(stream.queued.back()).end_ns()) {
        stream.queued.back() = task;
      }
    }
  }
}

std::int32_t DeviceStarts::last_launched(const Stream& stream, std::int64_t before_ns,
                                         std::int64_t ended_ns) const {
  auto place =
      std::lower_bound(stream.launch_start_ns.begin(), stream.launch_start_ns.end(), before_ns) -
      stream.launch_start_ns.begin();
  while (--place >= 0) {
    const std::int32_t task = stream.launched[place];
    if (gpu(task).end_ns() <= ended_ns) return task;
  }
  return -1;
}

bool DeviceStarts::same_launch(std::int32_t a, std::int32_t b) const {
  return gpu(a).launch >= 0 && gpu(a).launch == gpu(b).launch;
}

// A lane per stream. Work of one stream that overlaps (branches of a captured graph, kernels that
// begin early on purpose) goes to further lanes.
void DeviceStarts::lay_out() {
  constexpr auto kOverlapNs = static_cast<std::int64_t>(kMostOverlapUs * 1e3);
  lane_.assign(trace_.gpu.size(), 0);
  previous_.assign(trace_.gpu.size(), -1);
  for (const auto& [key, stream] : streams_) {
    std::vector<std::int32_t> tails;
    for (std::int32_t task : stream.tasks) {
      std::size_t branch = 0;
      while (branch < tails.size() &&
             gpu(tails[branch]).end_ns() > gpu(task).start_ns + kOverlapNs) {
        ++branch;
      }
      if (branch == tails.size()) tails.push_back(-1);
      lane_[task] = lanes_ + static_cast<std::int32_t>(branch);
      previous_[task] = tails[branch];
      tails[branch] = task;
    }
    lanes_ += static_cast<std::int32_t>(tails.size());
  }
}

// ---- other streams -----------------------------------------------------------------------------

void DeviceStarts::note_calls() {
  if (trace_.syncs.empty()) return;
  for (std::size_t i = 0; i < trace_.host.size(); ++i) {
    if (trace_.host[i].kind == HostKind::kCall && trace_.host[i].correlation >= 0) {
      call_of_correlation_[trace_.host[i].correlation] = static_cast<std::int32_t>(i);
    }
  }
}

std::int32_t DeviceStarts::last_before_record(const SyncEvent& sync) const {
  const auto record = call_of_correlation_.find(sync.wait_on_event_correlation);
  if (record == call_of_correlation_.end()) return -1;
  std::int32_t last = -1;
  for (const auto& [key, stream] : streams_) {
    if (key.second != sync.wait_on_stream) continue;
    const std::int32_t task = last_launched(stream, host(record->second).start_ns);
    if (task >= 0 && (last < 0 || gpu(task).end_ns() > gpu(last).end_ns())) last = task;
  }
  return last;
}

// Finds work launched after an awaited event. Recorded waits name their streams; without records,
// the next launch of a thread that called cudaStreamWaitEvent is taken to wait for every stream.
void DeviceStarts::find_event_waits() {
  bool recorded = false;
  for (const SyncEvent& sync : trace_.syncs) {
    const std::string_view kind = trace_.names.text(sync.kind);
    if (kind.find("Wait Event") == std::string_view::npos) continue;
    recorded = true;
    recorded_wait(sync);
  }
  if (recorded) return;
  std::int32_t thread = -1;
  bool pending = false;
  for (std::size_t i = 0; i < trace_.host.size(); ++i) {
    const HostEvent& event = trace_.host[i];
    if (event.thread != thread) {
      thread = event.thread;
      pending = false;
    }
    if (event.kind != HostKind::kCall) continue;
    if (trace_.name(event).ends_with("StreamWaitEvent")) pending = true;
    if (work_.count(i) == 0 || !pending) continue;
    pending = false;
    const std::int32_t task = work_.work[work_.first[i]];
    for (const auto& [key, stream] : streams_) {
      if (key.first != gpu(task).device || key.second == gpu(task).stream) continue;
      const std::int32_t awaited = last_launched(stream, event.start_ns, gpu(task).start_ns);
      if (awaited >= 0) waits_[task].push_back({awaited, {}, true});
    }
  }
}

void DeviceStarts::recorded_wait(const SyncEvent& sync) {
  const std::int32_t source = last_before_record(sync);
  const auto call = call_of_correlation_.find(sync.correlation);
  if (source < 0 || call == call_of_correlation_.end()) return;
  for (const auto& [key, stream] : streams_) {
    if (key.second != sync.stream || key.first != gpu(source).device) continue;
    const auto after = std::lower_bound(stream.launch_start_ns.begin(),
                                        stream.launch_start_ns.end(), host(call->second).end_ns());
    if (after == stream.launch_start_ns.end()) continue;
    const std::int32_t task = stream.launched[after - stream.launch_start_ns.begin()];
    if (key.second != gpu(source).stream) waits_[task].push_back({source, {}, false});
  }
}

const std::vector<DeviceStarts::Wait>& DeviceStarts::waits(std::int32_t task) const {
  static const std::vector<Wait> kNone;
  const auto found = waits_.find(task);
  return found == waits_.end() ? kNone : found->second;
}

// ---- typical starts ----------------------------------------------------------------------------

bool DeviceStarts::of_graph(std::int32_t task) const {
  return gpu(task).launch >= 0 &&
         (work_.count(gpu(task).launch) > 1 || is_graph_launch_call(trace_.name(launch_of(task))));
}

std::uint64_t DeviceStarts::kind_key(std::int32_t task) const {
  return static_cast<std::uint64_t>(gpu(task).kind) * 2 + (of_graph(task) ? 1 : 0);
}
std::uint64_t DeviceStarts::call_key(std::int32_t task) const {
  return kind_key(task) << 32 | launch_of(task).name;
}

bool DeviceStarts::blocks_its_call(std::int32_t task) const {
  const std::int32_t launch = gpu(task).launch;
  return launch >= 0 && call_waits_[launch].kind == CallWait::Kind::kBlockingCopy;
}

std::int64_t DeviceStarts::previous_end(std::int32_t task) const {
  const std::int32_t before = previous(task);
  return before < 0 ? std::numeric_limits<std::int64_t>::min() : gpu(before).end_ns();
}

std::int64_t DeviceStarts::awaited_end(std::int32_t task) const {
  std::int64_t end = std::numeric_limits<std::int64_t>::min();
  for (const Wait& wait : waits(task)) end = std::max(end, gpu(wait.task).end_ns());
  return end;
}

// Time at which a launch lets its task go: the call's end, or its start if the call waits for the
// task.
std::int64_t DeviceStarts::issue_ns(std::int32_t task) const {
  const HostEvent& call = launch_of(task);
  return blocks_its_call(task) ? call.start_ns : call.end_ns();
}

void DeviceStarts::measure() {
  for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
    const auto task = static_cast<std::int32_t>(i);
    if (gpu(task).launch < 0) continue;
    const std::int64_t call = issue_ns(task), start = gpu(task).start_ns;
    const std::int64_t before = previous_end(task), awaited = awaited_end(task);
    const std::int64_t others = std::max(before, awaited);
    const bool next_node = previous(task) >= 0 && same_launch(previous(task), task);
    if (others < call - kIdleMarginNs || others < start - 2 * kLatencyHighNs) {
      const std::int64_t distance = start - call;
      const bool large = blocks_its_call(task) && gpu(task).bytes > kLargeCopyBytes;
      if (distance > kLatencyLowNs && distance < kLatencyHighNs && !large) {
        (blocks_its_call(task) ? blocking_latency_ : latency_).add(call_key(task), distance);
      }
    } else if (before > call + kIdleMarginNs && awaited < before - kIdleMarginNs &&
               start - before < (next_node ? kNodeGapHighNs : kGapHighNs)) {
      gap_.add(kind_key(task), start - before);
    } else if (awaited > call + kIdleMarginNs && before < awaited - kIdleMarginNs &&
               start - awaited < kGapHighNs) {
      event_lag_.add(0, start - awaited);
    }
  }
}

double DeviceStarts::latency_us(std::int32_t task) const {
  const bool blocking = blocks_its_call(task);
  if (blocking && gpu(task).bytes > kLargeCopyBytes &&
      previous_end(task) < gpu(task).start_ns - kGapHighNs) {
    // Staging of a pageable buffer is its own.
    return std::min(us(gpu(task).start_ns - issue_ns(task)), kMostStagingUs);
  }
  // From the call's start and from its end: neither stands in for the other.
  return blocking ? blocking_latency_.mean(call_key(task), kBlockingLatencyUs)
                  : latency_.mean(call_key(task), kLatencyUs);
}

double DeviceStarts::gap_us(std::int32_t task) const { return gap_.mean(kind_key(task), kGapUs); }
double DeviceStarts::event_lag_us() const { return event_lag_.mean(0, kEventLagUs); }

// ---- late starts -------------------------------------------------------------------------------

void DeviceStarts::explain_late_start(std::int32_t task) {
  const GpuEvent& event = gpu(task);
  if (event.launch < 0) return;
  double allowed = us(issue_ns(task)) + latency_us(task);
  if (previous(task) >= 0) allowed = std::max(allowed, us(previous_end(task)) + gap_us(task));
  if (const auto awaited = awaited_end(task); awaited > 0) {
    allowed = std::max(allowed, us(awaited) + event_lag_us());
  }
  if (us(event.start_ns) - allowed <= us(kLateNs)) return;
  if (wait_for_ended(task) || wait_for_draining(task)) return;
  wait_for_unrecorded(task, allowed);
}

// The task of another stream, launched earlier (or by the same graph launch), that ended last
// before the start.
bool DeviceStarts::wait_for_ended(std::int32_t task) {
  const GpuEvent& event = gpu(task);
  std::int32_t best = -1;
  for (const auto& [key, stream] : streams_) {
    if (key.first != event.device) continue;
    const auto after = std::upper_bound(
        stream.tasks.begin(), stream.tasks.end(), event.start_ns,
        [&](std::int64_t stamp, std::int32_t other) { return stamp < gpu(other).start_ns; });
    for (auto place = after; place != stream.tasks.begin();) {
      const std::int32_t other = *--place;
      if (gpu(other).start_ns < event.start_ns - 1'000'000'000) break;
      if (gpu(other).end_ns() > event.start_ns + 1'000 || other == task) continue;
      if (gpu(other).end_ns() < event.start_ns - kEventReachNs) break;
      if (lane(other) == lane(task)) continue;
      const bool earlier = gpu(other).launch < 0 || same_launch(task, other) ||
                           launch_of(other).start_ns < launch_of(task).start_ns;
      if (earlier && (best < 0 || gpu(other).end_ns() > gpu(best).end_ns())) best = other;
    }
  }
  if (best < 0) return false;
  waits_[task].push_back({best, us(event.start_ns - gpu(best).end_ns()), true});
  ++inferred_waits_;
  return true;
}

// A big kernel of another stream ran from before the start was possible until after it: small work
// begins when its blocks drain, in proportion to its duration.
bool DeviceStarts::wait_for_draining(std::int32_t task) {
  const GpuEvent& event = gpu(task);
  std::int32_t best = -1;
  for (const auto& [key, stream] : streams_) {
    if (key.first != event.device || key.second == event.stream) continue;
    const auto after = std::upper_bound(
        stream.tasks.begin(), stream.tasks.end(), event.start_ns,
        [&](std::int64_t stamp, std::int32_t other) { return stamp < gpu(other).start_ns; });
    if (after == stream.tasks.begin()) continue;
    const std::int32_t other = *(after - 1);
    const bool held = gpu(other).end_ns() > event.start_ns &&
                      us(gpu(other).start_ns) < us(event.start_ns) - us(kLateNs) &&
                      gpu(other).kind == GpuKind::kKernel && !is_collective(other);
    if (held && (best < 0 || gpu(other).start_ns > gpu(best).start_ns)) best = other;
  }
  if (best < 0) return false;
  waits_[task].push_back({best, us(event.start_ns - gpu(best).end_ns()), true, true});
  ++held_tasks_;
  return true;
}

// Finds the work on the task's device, in any stream, that ended last before the task started.
std::int32_t DeviceStarts::last_ended_on_device(std::int32_t task) const {
  const GpuEvent& event = gpu(task);
  std::int32_t last = -1;
  for (const auto& [key, stream] : streams_) {
    if (key.first != event.device) continue;
    auto place = std::upper_bound(
        stream.tasks.begin(), stream.tasks.end(), event.start_ns,
        [&](std::int64_t stamp, std::int32_t other) { return stamp < gpu(other).start_ns; });
    while (place != stream.tasks.begin()) {
      const std::int32_t other = *--place;
      if (other == task || gpu(other).end_ns() > event.start_ns) continue;
      if (last < 0 || gpu(other).end_ns() > gpu(last).end_ns()) last = other;
      break;
    }
  }
  return last;
}

// No work in the trace kept this task: unrecorded work did. It counts from when the task might have
// begun, or from the end of the device's other work if that is later. The first work of a recording
// waits for earlier launches; the first of a graph, rather for the graph's.
void DeviceStarts::wait_for_unrecorded(std::int32_t task, double allowed_us) {
  Unrecorded held;
  const std::int32_t before = last_ended_on_device(task);
  double from_us = allowed_us;
  if (before < 0 && !of_graph(task)) {
    held.since_begin = true;
  } else if (before >= 0 && us(gpu(before).end_ns()) > allowed_us) {
    from_us = us(gpu(before).end_ns());
    held.after = before;
  }
  held.us = std::max(0.0, us(gpu(task).start_ns) - gap_us(task) - from_us);
  if (held.us > 0) unrecorded_.emplace(task, held);
}

// A call that waited for the last recorded node of a graph, or for older work than a graph of which
// no node was recorded, and ended much later: the graph went on.
void DeviceStarts::find_tails() {
  std::vector<std::int32_t> bare;  // graph launches without recorded work
  for (std::size_t i = 0; i < trace_.host.size(); ++i) {
    const HostEvent& event = trace_.host[i];
    if (event.kind == HostKind::kCall && work_.count(i) == 0 &&
        is_graph_launch_call(trace_.name(event))) {
      bare.push_back(static_cast<std::int32_t>(i));
    }
  }
  std::sort(bare.begin(), bare.end(),
            [&](std::int32_t a, std::int32_t b) { return host(a).end_ns() < host(b).end_ns(); });
  for (std::size_t i = 0; i < trace_.host.size(); ++i) {
    const CallWait& wait = call_waits_[i];
    if (wait.kind != CallWait::Kind::kSync || wait.sync == SyncKind::kEvent || wait.task < 0) {
      continue;
    }
    const HostEvent& call = trace_.host[i];
    const auto behind =
        std::upper_bound(bare.begin(), bare.end(), call.start_ns,
                         [&](std::int64_t ns, std::int32_t b) { return ns < host(b).end_ns(); });
    const std::int32_t graph = behind == bare.begin() ? -1 : *(behind - 1);
    const bool bare_graph = graph >= 0 && (gpu(wait.task).launch < 0 ||
                                           host(graph).start_ns >= launch_of(wait.task).end_ns());
    if (!bare_graph && !of_graph(wait.task)) continue;
    const std::int64_t from =
        std::max(gpu(wait.task).end_ns(), bare_graph ? host(graph).end_ns() : 0);
    if (from > call.end_ns() - kTailNs) continue;
    Tail& tail = tails_[wait.task];
    const double found_us = us(call.end_ns() - from) - kSyncOwnUs;
    if (found_us > tail.us) tail = {found_us, bare_graph ? graph : -1};
  }
}

const DeviceStarts::Unrecorded* DeviceStarts::unrecorded(std::int32_t task) const {
  const auto found = unrecorded_.find(task);
  return found == unrecorded_.end() ? nullptr : &found->second;
}

const DeviceStarts::Tail* DeviceStarts::tail(std::int32_t task) const {
  const auto found = tails_.find(task);
  return found == tails_.end() ? nullptr : &found->second;
}

std::vector<UnrecordedWork> DeviceStarts::all_unrecorded() const {
  std::vector<UnrecordedWork> all;
  for (const auto& [task, held] : unrecorded_) all.push_back({task, held.us});
  for (const auto& [task, tail] : tails_) all.push_back({task, tail.us});
  return all;
}

std::vector<double> unrecorded_per_step(std::span<const UnrecordedWork> work,
                                        std::span<const std::int32_t> step_of, std::size_t steps) {
  std::vector<double> sums(steps, 0);
  for (const UnrecordedWork& at : work) {
    const std::int32_t step = step_of[at.task];
    if (step >= 0) sums[step] += at.us;
  }
  return sums;
}

std::optional<std::string> unrecorded_warning(double unrecorded_us, double of_us) {
  constexpr double kLeast = 0.005;
  if (!(unrecorded_us > kLeast * of_us)) return {};
  return fmt::format(
      "unrecorded device work: for {:.3f} ms ({:.1f} % of the time) the device did nothing that "
      "the "
      "trace holds although work was queued; nodes of captured graphs, or what was launched before "
      "the recording, may be missing",
      unrecorded_us / 1e3, 100 * unrecorded_us / of_us);
}

std::optional<std::string> unrecorded_warning(const Trace& trace) {
  const std::vector<CallWait> waits = find_call_waits(trace);
  const CallWork work = work_of_calls(trace);
  const std::vector<UnrecordedWork> found = DeviceStarts(trace, waits, work).all_unrecorded();
  if (found.empty()) return {};
  const std::vector<TraceIteration> steps = iterations(trace);
  double sum_us = 0;
  std::int64_t wall_ns = 0;
  if (steps.empty()) {
    for (const UnrecordedWork& at : found) sum_us += at.us;
    for (const HostEvent& event : trace.host) wall_ns = std::max(wall_ns, event.end_ns());
    for (const GpuEvent& event : trace.gpu) wall_ns = std::max(wall_ns, event.end_ns());
  } else {
    for (double us : unrecorded_per_step(found, gpu_iterations(trace, steps), steps.size())) {
      sum_us += us;
    }
    for (const TraceIteration& step : steps) wall_ns += step.end_ns - step.begin_ns;
  }
  return unrecorded_warning(sum_us, us(wall_ns));
}

}  // namespace perfmodel
