#include "replay_tasks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "microseconds.hpp"
#include "perfmodel/graph/event_names.hpp"
#include "perfmodel/predict.hpp"
#include "statistics.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

// Borders between what happens and what waits, in nanoseconds. Those of the hand-over and of late
// starts may be moved by an order of magnitude without a change on any public trace.
constexpr std::int64_t kHandOverNs = 50'000;   // idle gap of a thread that may be a wait
constexpr std::int64_t kLongCallNs = 100'000;  // cudaFree and its like: may synchronise
constexpr double kLongCallFactor = 5;          // and longer than this many medians of its name
constexpr std::int64_t kShortEventSyncNs = 20'000;
constexpr std::int64_t kLateNs = 5'000;         // a start this much later than its known reasons
constexpr std::int64_t kEventReachNs = 15'000;  // awaited end this close before a late start
constexpr std::int64_t kClockSlackNs = 10'000;  // host and device clocks may differ by this
constexpr std::int64_t kLargeCopyBytes = 64 * 1024;
// Typical starts: what lies outside was held by something else.
constexpr std::int64_t kLatencyLowNs = -20'000, kLatencyHighNs = 20'000, kGapHighNs = 10'000;
constexpr std::int64_t kIdleMarginNs = 5'000;
// Where no sample tells (measured: launch -1 to 8, blocking copy 8 to 12, gap 1.1 to 2.2 us,
// awaited end to start 1.2 to 5).
constexpr double kLatencyUs = 1.5, kBlockingLatencyUs = 10, kGapUs = 1.3, kEventLagUs = 2;
constexpr std::size_t kDefaultQueueDepth = 1024;
constexpr std::int64_t kQueueFitNs = 50'000;
constexpr std::size_t kQueueSamples = 8;
constexpr std::size_t kLeastQueued = 64;

// Means of typical values by key (kind of work, name of the call), else over all.
class Typical {
 public:
  void add(std::uint64_t key, std::int64_t ns) {
    for (Sum* sum : {&by_key_[key], &all_}) {
      sum->us += us(ns);
      ++sum->count;
    }
  }
  double mean(std::uint64_t key, double fallback) const {
    const auto at = by_key_.find(key);
    const Sum& sum = at != by_key_.end() ? at->second : all_;
    return sum.count > 0 ? sum.us / static_cast<double>(sum.count) : fallback;
  }

 private:
  struct Sum {
    double us = 0;
    std::size_t count = 0;
  };
  std::unordered_map<std::uint64_t, Sum> by_key_;
  Sum all_;
};

class Builder {
 public:
  Builder(const Trace& trace, const ReplayOptions& options, double start_us,
          std::int32_t first_lane, const std::vector<bool>& meets, TaskGraph& graph)
      : trace_(trace),
        options_(options),
        start_us_(start_us),
        meets_(meets),
        graph_(graph),
        ops_(find_trace_ops(trace)),
        waits_(find_call_waits(trace)),
        work_(work_of_calls(trace)) {
    made_.first_lane = first_lane;
  }

  ReplayTasks build() {
    made_.begins.assign(trace_.host.size(), -1);
    made_.ends.assign(trace_.host.size(), -1);
    made_.device.assign(trace_.gpu.size(), -1);
    made_.arrivals.assign(trace_.gpu.size(), -1);
    points_.resize(trace_.threads.size());
    sort_launches();
    lay_out_device();
    find_queue_depth();
    find_host_waits();
    find_event_waits();
    measure_device();
    add_host_lanes();
    add_device_lanes();
    connect();
    return std::move(made_);
  }

 private:
  const HostEvent& host(std::int32_t i) const { return trace_.host[static_cast<std::size_t>(i)]; }
  const GpuEvent& gpu(std::int32_t i) const { return trace_.gpu[static_cast<std::size_t>(i)]; }
  const HostEvent& launch_of(std::int32_t task) const { return host(gpu(task).launch); }
  double scaled_kernel(std::int32_t task) const {
    const GpuEvent& event = gpu(task);
    const bool scaled =
        event.kind == GpuKind::kKernel && !is_collective_[static_cast<std::size_t>(task)];
    return scaled ? options_.scale_kernels : 1;
  }

  // ---- what was launched when
  // --------------------------------------------------------------------

  struct Stream {
    std::vector<std::int32_t> tasks;            // in start order
    std::vector<std::int64_t> launch_start_ns;  // of the launched ones, in launch order
    std::vector<std::int32_t> launched;
    std::vector<std::int32_t> queued;  // last task of each call: a graph takes one place
  };

  void sort_launches() {
    is_collective_.assign(trace_.gpu.size(), false);
    std::vector<std::int8_t> by_name(trace_.names.size(), -1);
    for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
      const GpuEvent& event = trace_.gpu[i];
      auto& collective = by_name[event.name];
      if (collective < 0) collective = is_collective_kernel(trace_.name(event)) ? 1 : 0;
      is_collective_[i] = event.kind == GpuKind::kKernel && collective == 1;
      Stream& stream = streams_[{event.device, event.stream}];
      stream.tasks.push_back(static_cast<std::int32_t>(i));
      if (event.launch >= 0) stream.launched.push_back(static_cast<std::int32_t>(i));
    }
    for (auto& [key, stream] : streams_) {
      std::stable_sort(stream.launched.begin(), stream.launched.end(),
                       [&](std::int32_t a, std::int32_t b) {
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

  // Last task of a stream launched before a stamp and, if asked, ended by another.
  std::int32_t last_launched(
      const Stream& stream, std::int64_t before_ns,
      std::int64_t ended_ns = std::numeric_limits<std::int64_t>::max()) const {
    auto at =
        std::lower_bound(stream.launch_start_ns.begin(), stream.launch_start_ns.end(), before_ns) -
        stream.launch_start_ns.begin();
    while (--at >= 0) {
      const std::int32_t task = stream.launched[static_cast<std::size_t>(at)];
      if (gpu(task).end_ns() <= ended_ns) return task;
    }
    return -1;
  }

  // A lane per stream. Work of one stream that overlaps (branches of a captured graph, kernels
  // that begin early on purpose) goes to further lanes.
  void lay_out_device() {
    constexpr auto kOverlapNs = static_cast<std::int64_t>(kMostOverlapUs * 1e3);
    lane_.assign(trace_.gpu.size(), 0);
    previous_.assign(trace_.gpu.size(), -1);
    std::int32_t lanes = 0;
    for (const auto& [key, stream] : streams_) {
      std::vector<std::int32_t> tails;
      for (std::int32_t task : stream.tasks) {
        std::size_t branch = 0;
        while (branch < tails.size() &&
               gpu(tails[branch]).end_ns() > gpu(task).start_ns + kOverlapNs) {
          ++branch;
        }
        if (branch == tails.size()) {
          tails.push_back(-1);
        }
        lane_[static_cast<std::size_t>(task)] = lanes + static_cast<std::int32_t>(branch);
        previous_[static_cast<std::size_t>(task)] = tails[branch];
        tails[branch] = task;
      }
      lanes += static_cast<std::int32_t>(tails.size());
    }
    device_lanes_ = lanes;
  }

  // ---- host waits
  // --------------------------------------------------------------------------------

  // A call that ends its own time after awaited work.
  struct HostWait {
    std::vector<std::int32_t> tasks;  // into Trace::gpu
    bool with_edges = true;           // no: only the waiting is taken out
  };

  void await(std::size_t call, std::int32_t task, bool with_edge) {
    if (task < 0) return;
    HostWait& wait = host_waits_[static_cast<std::int32_t>(call)];
    wait.with_edges = with_edge;
    if (std::find(wait.tasks.begin(), wait.tasks.end(), task) == wait.tasks.end()) {
      wait.tasks.push_back(task);
    }
  }

  void find_host_waits() {
    const std::vector<double> median_us = call_medians();
    std::unordered_map<std::int64_t, const SyncEvent*> records;
    for (const SyncEvent& sync : trace_.syncs) records[sync.correlation] = &sync;
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      const HostEvent& event = trace_.host[i];
      if (event.kind != HostKind::kCall) continue;
      const CallWait& wait = waits_[i];
      if (wait.kind == CallWait::Kind::kBlockingCopy) {
        await(i, wait.task, options_.rules.blocking_copies);
        ++made_.blocking_copies;
      } else if (wait.kind == CallWait::Kind::kSync) {
        const auto record = records.find(event.correlation);
        synchronise(i, wait, record == records.end() ? nullptr : record->second);
      } else if (event.duration_ns > kLongCallNs && work_.count(i) == 0 &&
                 (frees_memory(trace_.name(event)) ||
                  us(event.duration_ns) > kLongCallFactor * median_us[event.name])) {
        long_call(i);
      }
    }
  }

  // cudaFree, cudaFreeHost, hipFree: documented to synchronise, and often there is but one.
  static bool frees_memory(std::string_view call) {
    return call.find("Free") != std::string_view::npos && !call.ends_with("Async");
  }

  std::vector<double> call_medians() const {
    std::vector<std::vector<double>> by_name(trace_.names.size());
    for (const HostEvent& event : trace_.host) {
      if (event.kind == HostKind::kCall) by_name[event.name].push_back(us(event.duration_ns));
    }
    std::vector<double> medians;
    for (auto& values : by_name) medians.push_back(median_of(values));
    return medians;
  }

  void synchronise(std::size_t call, const CallWait& wait, const SyncEvent* record) {
    const HostEvent& event = trace_.host[call];
    ++made_.synchronisations;
    if (wait.sync == SyncKind::kDevice) {
      await_all(call);
      return;
    }
    if (wait.sync == SyncKind::kEvent) {
      if (record && record->wait_on_event_correlation >= 0) {
        await(call, last_before_record(*record), options_.rules.synchronise);
        return;
      }
      if (event.duration_ns < kShortEventSyncNs) return;
      await(call, last_ended(event), options_.rules.synchronise);
      return;
    }
    await(call, wait.task, options_.rules.synchronise);
  }

  // Of the tasks launched before a call, the one that ended last before it did. Behind an event
  // its stream may have more to do.
  std::int32_t last_ended(const HostEvent& call) const {
    std::int32_t last = -1;
    for (const auto& [key, stream] : streams_) {
      const std::int32_t task = last_launched(stream, call.start_ns, call.end_ns());
      if (task >= 0 && (last < 0 || gpu(task).end_ns() > gpu(last).end_ns())) last = task;
    }
    return last;
  }

  void await_all(std::size_t call) {
    for (const auto& [key, stream] : streams_) {
      const std::int32_t task = last_launched(stream, trace_.host[call].start_ns);
      if (task >= 0 && gpu(task).end_ns() <= trace_.host[call].end_ns() + kClockSlackNs) {
        await(call, task, options_.rules.synchronise);
      }
    }
  }

  // A long call that is no launch (cudaFree, cudaMalloc, ...) synchronised if everything launched
  // before it ended before it did, and the last of it inside it.
  void long_call(std::size_t call) {
    const HostEvent& event = trace_.host[call];
    std::int64_t last_end = std::numeric_limits<std::int64_t>::min();
    for (const auto& [key, stream] : streams_) {
      const std::int32_t task = last_launched(stream, event.start_ns);
      if (task >= 0) last_end = std::max(last_end, gpu(task).end_ns());
    }
    if (last_end <= event.start_ns || last_end > event.end_ns()) return;
    ++made_.synchronisations;
    ++made_.inferred_waits;
    await_all(call);
  }

  // Last task on the stream of an event, launched before the event was recorded.
  std::int32_t last_before_record(const SyncEvent& sync) {
    if (call_of_correlation_.empty()) {
      for (std::size_t i = 0; i < trace_.host.size(); ++i) {
        if (trace_.host[i].kind == HostKind::kCall && trace_.host[i].correlation >= 0) {
          call_of_correlation_[trace_.host[i].correlation] = static_cast<std::int32_t>(i);
        }
      }
    }
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

  // ---- launch queue
  // ------------------------------------------------------------------------------

  // Launches of a stream that were not done when a call began, per call; the queue's filling.
  std::vector<std::size_t> outstanding(const Stream& stream) const {
    std::vector<std::size_t> counts;
    std::size_t done = 0;
    for (std::size_t i = 0; i < stream.queued.size(); ++i) {
      const std::int64_t begin = launch_of(stream.queued[i]).start_ns;
      while (done < i && gpu(stream.queued[done]).end_ns() <= begin) ++done;
      counts.push_back(i - done);
    }
    return counts;
  }

  // Medians by name of launches that found room: those that did not may be the majority.
  std::vector<double> unblocked_medians() const {
    std::vector<std::vector<double>> by_name(trace_.names.size());
    for (const auto& [key, stream] : streams_) {
      const auto filling = outstanding(stream);
      for (std::size_t i = 0; i < filling.size(); ++i) {
        const HostEvent& call = launch_of(stream.queued[i]);
        if (filling[i] < kLeastQueued) by_name[call.name].push_back(us(call.duration_ns));
      }
    }
    std::vector<double> medians;
    for (auto& values : by_name) medians.push_back(median_of(values));
    return medians;
  }

  // Long launches end when a task some launches back does: how many, if they agree.
  void find_queue_depth() {
    made_.queue_depth = kDefaultQueueDepth;
    const std::vector<double> median_us = unblocked_medians();
    struct Long {
      const Stream* stream;
      std::size_t position;
    };
    std::vector<Long> blocked;
    std::vector<std::size_t> depths;
    for (const auto& [key, stream] : streams_) {
      const auto filling = outstanding(stream);
      for (std::size_t i = 0; i < filling.size(); ++i) {
        const HostEvent& call = launch_of(stream.queued[i]);
        const bool long_call = us(call.duration_ns) > kLongCallFactor * median_us[call.name] &&
                               us(call.duration_ns) > 2;
        if (filling[i] < kLeastQueued || !long_call || is_copy_call(trace_.name(call))) continue;
        // The last task that ended before the call did.
        std::size_t at = i - filling[i];
        while (at < i && gpu(stream.queued[at]).end_ns() <= call.end_ns()) ++at;
        if (at == 0) continue;
        depths.push_back(i - (at - 1));
        blocked.push_back({&stream, i});
      }
    }
    if (depths.size() < kQueueSamples) return;
    std::vector<std::size_t> sorted = depths;
    std::sort(sorted.begin(), sorted.end());
    // The most frequent depth, of equal ones the smaller.
    std::size_t best = 0, best_count = 0;
    for (std::size_t i = 0; i < sorted.size();) {
      std::size_t end = i;
      while (end < sorted.size() && sorted[end] == sorted[i]) ++end;
      if (end - i > best_count) {
        best = sorted[i];
        best_count = end - i;
      }
      i = end;
    }
    std::vector<double> distances;
    for (const Long& at : blocked) {
      if (at.position < best) continue;
      distances.push_back(std::abs(us(launch_of(at.stream->queued[at.position]).end_ns() -
                                      gpu(at.stream->queued[at.position - best]).end_ns())));
    }
    if (best_count * 4 < depths.size() || distances.empty() ||
        median_of(distances) > us(kQueueFitNs)) {
      return;
    }
    made_.queue_depth = best;
    made_.queue_depth_fitted = true;
  }

  // ---- device waits
  // ------------------------------------------------------------------------------

  struct DeviceWait {
    std::int32_t task = -1;
    std::optional<double> lag_us;  // none: that of an awaited event
    bool inferred = false, held = false;
  };

  // Work launched behind an awaited event. Recorded waits name their streams; without records, the
  // next launch of a thread that called cudaStreamWaitEvent is taken to wait for every stream.
  void find_event_waits() {
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
        if (awaited >= 0) device_waits_[task].push_back({awaited, {}, true});
      }
    }
  }

  void recorded_wait(const SyncEvent& sync) {
    const std::int32_t source = last_before_record(sync);
    const auto call = call_of_correlation_.find(sync.correlation);
    if (source < 0 || call == call_of_correlation_.end()) return;
    for (const auto& [key, stream] : streams_) {
      if (key.second != sync.stream || key.first != gpu(source).device) continue;
      const auto after =
          std::lower_bound(stream.launch_start_ns.begin(), stream.launch_start_ns.end(),
                           host(call->second).end_ns());
      if (after == stream.launch_start_ns.end()) continue;
      const std::int32_t task =
          stream.launched[static_cast<std::size_t>(after - stream.launch_start_ns.begin())];
      if (key.second != gpu(source).stream) device_waits_[task].push_back({source, {}, false});
    }
  }

  std::uint64_t kind_key(std::int32_t task) const {
    const GpuEvent& event = gpu(task);
    const bool graph = event.launch >= 0 && work_.count(static_cast<std::size_t>(event.launch)) > 1;
    return static_cast<std::uint64_t>(event.kind) * 2 + (graph ? 1 : 0);
  }
  std::uint64_t call_key(std::int32_t task) const {
    return kind_key(task) << 32 | launch_of(task).name;
  }

  bool blocks_its_call(std::int32_t task) const {
    const std::int32_t launch = gpu(task).launch;
    return launch >= 0 &&
           waits_[static_cast<std::size_t>(launch)].kind == CallWait::Kind::kBlockingCopy;
  }

  std::int64_t previous_end(std::int32_t task) const {
    const std::int32_t previous = previous_[static_cast<std::size_t>(task)];
    return previous < 0 ? std::numeric_limits<std::int64_t>::min() : gpu(previous).end_ns();
  }

  std::int64_t awaited_end(std::int32_t task) const {
    std::int64_t end = std::numeric_limits<std::int64_t>::min();
    const auto waits = device_waits_.find(task);
    if (waits == device_waits_.end()) return end;
    for (const DeviceWait& wait : waits->second) end = std::max(end, gpu(wait.task).end_ns());
    return end;
  }

  // Launch latency, gap between queued tasks and distance of an awaited event, as means of starts
  // that nothing else explains; then the starts that remain unexplained.
  void measure_device() {
    for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
      const auto task = static_cast<std::int32_t>(i);
      if (gpu(task).launch < 0) continue;
      const std::int64_t call = issue_ns(task), start = gpu(task).start_ns;
      const std::int64_t before = previous_end(task), awaited = awaited_end(task);
      const std::int64_t others = std::max(before, awaited);
      if (others < call - kIdleMarginNs || others < start - 2 * kLatencyHighNs) {
        const std::int64_t distance = start - call;
        const bool large = blocks_its_call(task) && gpu(task).bytes > kLargeCopyBytes;
        if (distance > kLatencyLowNs && distance < kLatencyHighNs && !large) {
          (blocks_its_call(task) ? blocking_latency_ : latency_).add(call_key(task), distance);
        }
      } else if (before > call + kIdleMarginNs && awaited < before - kIdleMarginNs &&
                 start - before < kGapHighNs) {
        gap_.add(kind_key(task), start - before);
      } else if (awaited > call + kIdleMarginNs && before < awaited - kIdleMarginNs &&
                 start - awaited < kGapHighNs) {
        event_lag_.add(0, start - awaited);
      }
    }
    for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
      explain_late_start(static_cast<std::int32_t>(i));
    }
  }

  // Where a launch lets its task go: the call's end, or its start if the call waits for the task.
  std::int64_t issue_ns(std::int32_t task) const {
    const HostEvent& call = launch_of(task);
    return blocks_its_call(task) ? call.start_ns : call.end_ns();
  }

  double latency_us(std::int32_t task) const {
    const bool blocking = blocks_its_call(task);
    if (blocking && gpu(task).bytes > kLargeCopyBytes &&
        previous_end(task) < gpu(task).start_ns - kGapHighNs) {
      return us(gpu(task).start_ns - issue_ns(task));  // staging of a pageable buffer is its own
    }
    // From the call's start and from its end: neither stands in for the other.
    return blocking ? blocking_latency_.mean(call_key(task), kBlockingLatencyUs)
                    : latency_.mean(call_key(task), kLatencyUs);
  }
  double gap_us(std::int32_t task) const { return gap_.mean(kind_key(task), kGapUs); }
  double event_lag_us() const { return event_lag_.mean(0, kEventLagUs); }

  void explain_late_start(std::int32_t task) {
    const GpuEvent& event = gpu(task);
    if (event.launch < 0) return;
    double allowed = us(issue_ns(task)) + latency_us(task);
    if (previous_[static_cast<std::size_t>(task)] >= 0) {
      allowed = std::max(allowed, us(previous_end(task)) + gap_us(task));
    }
    if (const auto awaited = awaited_end(task); awaited > 0) {
      allowed = std::max(allowed, us(awaited) + event_lag_us());
    }
    const double late_us = us(event.start_ns) - allowed;
    if (late_us <= us(kLateNs)) return;
    if (wait_for_ended(task) || wait_for_draining(task)) return;
    ++made_.unexplained;
    made_.unexplained_us += late_us;
  }

  bool same_launch(std::int32_t a, std::int32_t b) const {
    return gpu(a).launch >= 0 && gpu(a).launch == gpu(b).launch;
  }

  // The task of another stream, launched earlier (or by the same graph launch), that ended last
  // before the start.
  bool wait_for_ended(std::int32_t task) {
    const GpuEvent& event = gpu(task);
    std::int32_t best = -1;
    for (const auto& [key, stream] : streams_) {
      if (key.first != event.device) continue;
      const auto after = std::upper_bound(
          stream.tasks.begin(), stream.tasks.end(), event.start_ns,
          [&](std::int64_t stamp, std::int32_t other) { return stamp < gpu(other).start_ns; });
      for (auto at = after; at != stream.tasks.begin();) {
        const std::int32_t other = *--at;
        if (gpu(other).start_ns < event.start_ns - 1'000'000'000) break;
        if (gpu(other).end_ns() > event.start_ns + 1'000 || other == task) continue;
        if (gpu(other).end_ns() < event.start_ns - kEventReachNs) break;
        if (lane_[static_cast<std::size_t>(other)] == lane_[static_cast<std::size_t>(task)])
          continue;
        const bool earlier = gpu(other).launch < 0 || same_launch(task, other) ||
                             launch_of(other).start_ns < launch_of(task).start_ns;
        if (earlier && (best < 0 || gpu(other).end_ns() > gpu(best).end_ns())) best = other;
      }
    }
    if (best < 0) return false;
    device_waits_[task].push_back({best, us(event.start_ns - gpu(best).end_ns()), true});
    ++made_.inferred_waits;
    return true;
  }

  // A big kernel of another stream ran from before the start was possible until after it: small
  // work begins when its blocks drain, in proportion to its duration.
  bool wait_for_draining(std::int32_t task) {
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
                        gpu(other).kind == GpuKind::kKernel &&
                        !is_collective_[static_cast<std::size_t>(other)];
      if (held && (best < 0 || gpu(other).start_ns > gpu(best).start_ns)) best = other;
    }
    if (best < 0) return false;
    const double lag = us(event.start_ns - gpu(best).end_ns()) * scaled_kernel(best);
    device_waits_[task].push_back({best, lag, true, true});
    ++made_.held_tasks;
    return true;
  }

  // ---- host lanes
  // --------------------------------------------------------------------------------

  struct Point {
    std::int64_t stamp_ns;
    TaskId task;  // that ends here
  };

  // Ends of top-level ops of all threads, for hand-overs.
  struct OpEnd {
    std::int64_t stamp_ns;
    std::int32_t thread, event;
  };

  void add_host_lanes() {
    takes_part_.assign(trace_.threads.size(), false);
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      const HostEvent& event = trace_.host[i];
      // Threads that only ask (the watchdog of a communication library) are left out. One that
      // marks the iterations may have neither ops nor launches.
      if (event.kind != HostKind::kCall || work_.count(i) > 0) {
        takes_part_[static_cast<std::size_t>(event.thread)] = true;
      }
    }
    for (std::int32_t top : ops_.top_level) {
      op_ends_.push_back({host(top).end_ns(), host(top).thread, top});
    }
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      if (work_.count(i) > 0 && ops_.call_owner[i] < 0) {
        op_ends_.push_back(
            {trace_.host[i].end_ns(), trace_.host[i].thread, static_cast<std::int32_t>(i)});
      }
    }
    std::sort(op_ends_.begin(), op_ends_.end(),
              [](const OpEnd& a, const OpEnd& b) { return a.stamp_ns < b.stamp_ns; });
    calls_of_op_.assign(ops_.top_level.size(), 0);
    for (std::int32_t owner : ops_.call_owner) {
      if (owner >= 0) ++calls_of_op_[static_cast<std::size_t>(owner)];
    }
    for (std::size_t i = 0; i < trace_.host.size();) {
      std::size_t end = i;
      while (end < trace_.host.size() && trace_.host[end].thread == trace_.host[i].thread) ++end;
      if (takes_part_[static_cast<std::size_t>(trace_.host[i].thread)]) add_thread(i, end);
      i = end;
    }
    made_.device_lane = made_.first_lane + next_lane_;
  }

  // State of the walk over one thread.
  struct Walk {
    std::int32_t lane = 0, thread = 0;
    std::int64_t cursor_ns = 0;
    TaskId last = -1;
    std::vector<std::int32_t> open;  // ops and annotations
    std::size_t open_ops = 0, open_loaders = 0;
    std::int32_t top = -1;  // position in TraceOps::top_level
    std::size_t calls_seen = 0;
  };

  void add_thread(std::size_t begin, std::size_t end) {
    Walk walk;
    walk.lane = made_.first_lane + next_lane_++;
    walk.thread = trace_.host[begin].thread;
    walk.cursor_ns = trace_.host[begin].start_ns;
    walk.last = graph_.add_task(walk.lane, 0);
    first_points_.push_back({walk.cursor_ns, walk.last, walk.thread});
    note_point(walk);
    auto top =
        static_cast<std::size_t>(std::lower_bound(ops_.top_level.begin(), ops_.top_level.end(),
                                                  static_cast<std::int32_t>(begin)) -
                                 ops_.top_level.begin());
    for (std::size_t i = begin; i < end; ++i) {
      const HostEvent& event = trace_.host[i];
      close_until(walk, event.start_ns);
      advance(walk, event.start_ns);
      made_.begins[i] = walk.last;
      if (event.kind == HostKind::kCall) {
        call(walk, static_cast<std::int32_t>(i));
        continue;
      }
      if (top < ops_.top_level.size() && ops_.top_level[top] == static_cast<std::int32_t>(i)) {
        walk.top = static_cast<std::int32_t>(top++);
        walk.calls_seen = 0;
      }
      open(walk, static_cast<std::int32_t>(i));
    }
    close_until(walk, std::numeric_limits<std::int64_t>::max());
  }

  void open(Walk& walk, std::int32_t event) {
    walk.open.push_back(event);
    walk.open_ops += host(event).kind == HostKind::kOp;
    walk.open_loaders += loads_data(event);
  }

  bool loads_data(std::int32_t event) const {
    return host(event).kind == HostKind::kAnnotation && is_data_loading(trace_.name(host(event)));
  }

  // Innermost first, so that every end finds the right owner for the time before it.
  void close_until(Walk& walk, std::int64_t stamp_ns) {
    while (!walk.open.empty() && host(walk.open.back()).end_ns() <= stamp_ns) {
      const std::int32_t event = walk.open.back();
      advance(walk, host(event).end_ns());
      made_.ends[static_cast<std::size_t>(event)] = walk.last;
      walk.open.pop_back();
      walk.open_ops -= host(event).kind == HostKind::kOp;
      walk.open_loaders -= loads_data(event);
      if (walk.open_ops == 0) walk.top = -1;
    }
  }

  Term term(const Walk& walk) const {
    if (walk.open_loaders > 0) return Term::kDataLoading;
    if (walk.top < 0) return Term::kT1;
    const std::size_t calls = calls_of_op_[static_cast<std::size_t>(walk.top)];
    if (calls == 0) return Term::kTx;
    if (walk.calls_seen == 0) return Term::kT2;
    return walk.calls_seen >= calls ? Term::kT3 : Term::kT5;
  }

  TaskId add_segment(Walk& walk, std::int64_t duration_ns, Term kind, std::int32_t owner) {
    const bool loading = walk.open_loaders > 0;
    const double scale = loading ? 1 : options_.scale_host;
    walk.last = graph_.add_task(walk.lane, us(duration_ns) * scale, 0, owner,
                                static_cast<std::int32_t>(loading ? Term::kDataLoading : kind));
    if (loading) made_.data_loading.push_back(walk.last);
    return walk.last;
  }

  void note_point(const Walk& walk) {
    points_[static_cast<std::size_t>(walk.thread)].push_back({walk.cursor_ns, walk.last});
  }

  // The stretch up to a stamp outside of calls: own time, or waiting for another thread.
  void advance(Walk& walk, std::int64_t stamp_ns) {
    if (stamp_ns <= walk.cursor_ns) return;
    std::int64_t own = stamp_ns - walk.cursor_ns;
    const OpEnd* awaited = nullptr;
    if (own > kHandOverNs && walk.open_ops == 0 && walk.open_loaders == 0) {
      awaited = last_op_end(walk.thread, walk.cursor_ns, stamp_ns);
    }
    if (awaited) own = stamp_ns - awaited->stamp_ns;
    const std::int32_t owner = walk.open.empty() ? -1 : walk.open.back();
    const TaskId task = add_segment(walk, own, term(walk), owner);
    if (awaited) {
      if (options_.rules.hand_over) hand_overs_.push_back({awaited->event, task});
      ++made_.hand_overs;
    }
    walk.cursor_ns = stamp_ns;
    note_point(walk);
  }

  const OpEnd* last_op_end(std::int32_t thread, std::int64_t after_ns,
                           std::int64_t until_ns) const {
    auto at =
        std::upper_bound(op_ends_.begin(), op_ends_.end(), until_ns,
                         [](std::int64_t stamp, const OpEnd& end) { return stamp < end.stamp_ns; });
    while (at != op_ends_.begin()) {
      --at;
      if (at->stamp_ns <= after_ns) return nullptr;
      if (at->thread != thread && takes_part_[static_cast<std::size_t>(at->thread)]) return &*at;
    }
    return nullptr;
  }

  void call(Walk& walk, std::int32_t event) {
    const HostEvent& at = host(event);
    const std::int64_t begin = walk.cursor_ns, end = std::max(begin, at.end_ns());
    const bool launch = work_.count(static_cast<std::size_t>(event)) > 0 ||
                        ops_.call_owner[static_cast<std::size_t>(event)] >= 0;
    std::int64_t own = end - begin;
    std::vector<std::pair<std::int32_t, double>> awaited;  // task, lag
    const auto wait_for = [&](std::int32_t task) {
      const std::int64_t done = gpu(task).end_ns();
      own = std::min(own, std::max<std::int64_t>(0, end - done));
      // A large pageable copy lets its call go before its last byte has arrived.
      awaited.emplace_back(task, std::min(0.0, us(end - done)));
    };
    if (const auto waits = host_waits_.find(event); waits != host_waits_.end()) {
      for (std::int32_t task : waits->second.tasks) wait_for(task);
      if (!waits->second.with_edges) awaited.clear();
    }
    if (const std::int32_t task = queue_head(event); task >= 0 && gpu(task).end_ns() <= end) {
      wait_for(task);
      if (!options_.rules.launch_queue) awaited.pop_back();
    }
    const std::int32_t owner = walk.open.empty() ? -1 : walk.open.back();
    const TaskId task = add_segment(walk, own, launch ? Term::kT4 : term(walk), owner);
    for (const auto& [source, lag] : awaited) host_edges_.push_back({source, task, lag});
    walk.calls_seen += launch;
    walk.cursor_ns = end;
    made_.ends[static_cast<std::size_t>(event)] = task;
    note_point(walk);
  }

  // The task that must have ended before this launch finds room in the queue.
  std::int32_t queue_head(std::int32_t call) {
    if (work_.count(static_cast<std::size_t>(call)) == 0) return -1;
    if (queue_position_.empty()) {
      queue_position_.assign(trace_.gpu.size(), 0);
      for (const auto& [key, stream] : streams_) {
        for (std::size_t i = 0, place = 0; i < stream.launched.size(); ++i) {
          if (i > 0 && !same_launch(stream.launched[i - 1], stream.launched[i])) ++place;
          queue_position_[static_cast<std::size_t>(stream.launched[i])] = place;
        }
      }
    }
    const std::int32_t task = work_.work[work_.first[static_cast<std::size_t>(call)]];
    const Stream& stream = streams_.at({gpu(task).device, gpu(task).stream});
    const std::size_t position = queue_position_[static_cast<std::size_t>(task)];
    if (position < made_.queue_depth) return -1;
    return stream.queued[position - made_.queue_depth];
  }

  // ---- device lanes
  // ------------------------------------------------------------------------------

  void add_device_lanes() {
    // Tasks of all streams in start order, so that most edges point forward.
    std::vector<std::int32_t> order(trace_.gpu.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return gpu(a).start_ns < gpu(b).start_ns;
    });
    for (std::int32_t i : order) {
      const GpuEvent& event = gpu(i);
      const std::int32_t previous = previous_[static_cast<std::size_t>(i)];
      double gap = gap_us(i);
      if (event.launch < 0) {
        ++made_.without_launch;
        // Launched before the window: what the stream does until then is the initial condition.
        if (previous >= 0) gap = us(event.start_ns - gpu(previous).end_ns());
      } else if (work_.count(static_cast<std::size_t>(event.launch)) > 1) {
        ++made_.graph_tasks;
      }
      const Term kind = is_collective_[static_cast<std::size_t>(i)] ? Term::kCollective
                        : event.kind == GpuKind::kCopy              ? Term::kCopy
                        : event.kind == GpuKind::kSet               ? Term::kSet
                                                                    : Term::kKernel;
      const std::int32_t lane = made_.device_lane + lane_[static_cast<std::size_t>(i)];
      const bool meets = !meets_.empty() && meets_[static_cast<std::size_t>(i)];
      const TaskId task =
          graph_.add_task(lane, meets ? 0 : us(event.duration_ns) * scaled_kernel(i), gap, i,
                          static_cast<std::int32_t>(kind));
      made_.arrivals[static_cast<std::size_t>(i)] = task;
      made_.device[static_cast<std::size_t>(i)] =
          meets ? graph_.add_task(lane, 0, 0, i, static_cast<std::int32_t>(kind)) : task;
    }
    made_.end_lane = made_.device_lane + device_lanes_;
  }

  // ---- edges
  // -------------------------------------------------------------------------------------

  TaskId device_end(std::int32_t i) const { return made_.device[static_cast<std::size_t>(i)]; }
  TaskId device_begin(std::int32_t i) const { return made_.arrivals[static_cast<std::size_t>(i)]; }

  void connect() {
    const TaskId clock = graph_.add_task(TaskGraph::kNoLane, start_us_);
    for (const auto& [stamp, task, thread] : first_points_)
      connect_first(clock, stamp, task, thread);
    for (const auto& [event, task] : hand_overs_) {
      graph_.add_edge(made_.ends[static_cast<std::size_t>(event)], task, 0,
                      TaskGraph::EdgeKind::kInferred);
    }
    for (const auto& [source, task, lag] : host_edges_)
      graph_.add_edge(device_end(source), task, lag);
    for (std::size_t i = 0; i < trace_.gpu.size(); ++i)
      connect_device(clock, static_cast<std::int32_t>(i));
  }

  // A thread that appears later hangs on the last point before it of another thread.
  void connect_first(TaskId clock, std::int64_t stamp, TaskId task, std::int32_t thread) {
    const Point* last = nullptr;
    bool loading = false;  // that thread loaded data then
    for (std::size_t other = 0; other < points_.size(); ++other) {
      if (static_cast<std::int32_t>(other) == thread || points_[other].empty()) continue;
      const auto& points = points_[other];
      const auto after =
          std::upper_bound(points.begin(), points.end(), stamp,
                           [](std::int64_t at, const Point& p) { return at < p.stamp_ns; });
      if (after == points.begin()) continue;
      const auto at = after - 1;
      // Of two threads that begin together, the one listed first leads.
      if (at->stamp_ns == stamp && static_cast<std::int32_t>(other) > thread) continue;
      if (last && at->stamp_ns <= last->stamp_ns) continue;
      last = &*at;
      loading = after != points.end() &&
                graph_.term(after->task) == static_cast<std::int32_t>(Term::kDataLoading);
    }
    if (last) {
      graph_.add_edge(last->task, task,
                      us(stamp - last->stamp_ns) * (loading ? 1 : options_.scale_host));
    } else {
      graph_.add_edge(clock, task, us(stamp));
    }
  }

  void connect_device(TaskId clock, std::int32_t i) {
    const GpuEvent& event = gpu(i);
    if (event.launch >= 0) {
      const auto call = static_cast<std::size_t>(event.launch);
      graph_.add_edge(blocks_its_call(i) ? made_.begins[call] : made_.ends[call], device_begin(i),
                      latency_us(i));
    } else if (previous_[static_cast<std::size_t>(i)] < 0) {
      graph_.add_edge(clock, device_begin(i), us(event.start_ns));
    }
    const auto waits = device_waits_.find(i);
    if (waits == device_waits_.end()) return;
    for (const DeviceWait& wait : waits->second) {
      if (!(wait.held ? options_.rules.held_machine : options_.rules.cross_stream)) continue;
      const double lag = wait.lag_us.value_or(event_lag_us());
      graph_.add_edge(
          device_end(wait.task), device_begin(i), lag,
          wait.inferred ? TaskGraph::EdgeKind::kInferred : TaskGraph::EdgeKind::kCertain);
      ++made_.event_waits;
    }
  }

  struct FirstPoint {
    std::int64_t stamp_ns;
    TaskId task;
    std::int32_t thread;
  };
  struct HandOver {
    std::int32_t event;
    TaskId task;
  };
  struct HostEdge {
    std::int32_t source;
    TaskId task;
    double lag_us;
  };

  const Trace& trace_;
  const ReplayOptions& options_;
  double start_us_;
  const std::vector<bool>& meets_;
  TaskGraph& graph_;
  TraceOps ops_;
  std::vector<CallWait> waits_;
  CallWork work_;
  ReplayTasks made_;
  std::map<std::pair<std::int16_t, std::int64_t>, Stream> streams_;  // by device and stream
  std::vector<bool> is_collective_, takes_part_;
  std::vector<std::int32_t> lane_, previous_;  // per GPU event
  std::int32_t device_lanes_ = 0, next_lane_ = 0;
  std::unordered_map<std::int32_t, HostWait> host_waits_;  // by host event
  std::unordered_map<std::int64_t, std::int32_t> call_of_correlation_;
  std::unordered_map<std::int32_t, std::vector<DeviceWait>> device_waits_;  // by GPU event
  Typical latency_, blocking_latency_, gap_, event_lag_;
  std::vector<std::size_t> queue_position_;
  std::vector<OpEnd> op_ends_;
  std::vector<std::size_t> calls_of_op_;
  std::vector<std::vector<Point>> points_;  // per thread
  std::vector<FirstPoint> first_points_;
  std::vector<HandOver> hand_overs_;
  std::vector<HostEdge> host_edges_;
};

}  // namespace

bool is_data_loading(std::string_view annotation) {
  return annotation.starts_with("enumerate(DataLoader)");
}

ReplayTasks add_replay_tasks(const Trace& trace, const ReplayOptions& options, double start_us,
                             std::int32_t first_lane, const std::vector<bool>& meets,
                             TaskGraph& graph) {
  return Builder(trace, options, start_us, first_lane, meets, graph).build();
}

}  // namespace perfmodel
