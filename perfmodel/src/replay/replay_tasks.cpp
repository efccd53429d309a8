#include "replay_tasks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "microseconds.hpp"
#include "overheads/statistics.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/prediction.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

// Borders between normal delays and waits, in nanoseconds. Ten times the hand-over border changes
// no public trace.
constexpr std::int64_t kHandOverNs = 50'000;   // idle gap of a thread that may be a wait
constexpr std::int64_t kLongCallNs = 100'000;  // cudaFree and its like: may synchronise
constexpr double kLongCallFactor = 5;          // and longer than this many medians of its name
constexpr std::int64_t kShortEventSyncNs = 20'000;
constexpr std::int64_t kClockSlackNs = 10'000;  // host and device clocks may differ by this
constexpr std::size_t kDefaultQueueDepth = 1024;
constexpr std::int64_t kQueueFitNs = 50'000;
constexpr std::size_t kQueueSamples = 8;
constexpr std::size_t kLeastQueued = 64;

// A trace with the waits and launches of its calls.
struct Recorded {
  explicit Recorded(const Trace& recording) : trace(recording) {}
  Recorded(const Recorded&) = delete;  // the device's starts refer to the waits

  const HostEvent& host(std::int32_t i) const { return trace.host[i]; }
  const GpuEvent& gpu(std::int32_t i) const { return trace.gpu[i]; }
  const HostEvent& launch_of(std::int32_t task) const { return host(gpu(task).launch); }

  const Trace& trace;
  const TraceOps ops = find_trace_ops(trace);
  const std::vector<CallWait> waits = find_call_waits(trace);
  const CallWork work = work_of_calls(trace);
  const DeviceStarts device{trace, waits, work};
};

using Stream = DeviceStarts::Stream;

// A call that ends its own time after awaited work.
struct HostWait {
  std::vector<std::int32_t> tasks;  // into Trace::gpu
  bool with_edges = true;           // no: only the waiting is taken out
};

using HostWaits = std::unordered_map<std::int32_t, HostWait>;  // by host event

// cudaFree, cudaFreeHost, hipFree: documented to synchronise, and often there is but one.
bool frees_memory(std::string_view call) {
  return call.find("Free") != std::string_view::npos && !call.ends_with("Async");
}

std::vector<double> medians_of(const std::vector<std::vector<double>>& by_name) {
  std::vector<double> medians;
  for (const auto& values : by_name) medians.push_back(median_of(values));
  return medians;
}

std::vector<double> call_medians(const Trace& trace) {
  std::vector<std::vector<double>> by_name(trace.names.size());
  for (const HostEvent& event : trace.host) {
    if (event.kind == HostKind::kCall) by_name[event.name].push_back(us(event.duration_ns));
  }
  return medians_of(by_name);
}

class HostWaitFinder {
 public:
  HostWaitFinder(const Recorded& recorded, const ReplayRules& rules, ReplayTasks& tasks)
      : recorded_(recorded), rules_(rules), tasks_(tasks) {}

  HostWaits find() {
    const std::vector<double> median_us = call_medians(trace_);
    std::unordered_map<std::int64_t, const SyncEvent*> records;
    for (const SyncEvent& sync : trace_.syncs) records[sync.correlation] = &sync;
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      const HostEvent& event = trace_.host[i];
      if (event.kind != HostKind::kCall) continue;
      const CallWait& wait = recorded_.waits[i];
      if (wait.kind == CallWait::Kind::kBlockingCopy) {
        await(i, wait.task, rules_.blocking_copies);
        ++tasks_.blocking_copies;
      } else if (wait.kind == CallWait::Kind::kSync) {
        const auto record = records.find(event.correlation);
        synchronise(i, wait, record == records.end() ? nullptr : record->second);
      } else if (event.duration_ns > kLongCallNs && recorded_.work.count(i) == 0 &&
                 (frees_memory(trace_.name(event)) ||
                  us(event.duration_ns) > kLongCallFactor * median_us[event.name])) {
        long_call(i);
      }
    }
    return std::move(host_waits_);
  }

 private:
  void await(std::size_t call, std::int32_t task, bool with_edge) {
    if (task < 0) return;
    HostWait& wait = host_waits_[static_cast<std::int32_t>(call)];
    wait.with_edges = with_edge;
    if (std::find(wait.tasks.begin(), wait.tasks.end(), task) == wait.tasks.end()) {
      wait.tasks.push_back(task);
    }
  }

  void synchronise(std::size_t call, const CallWait& wait, const SyncEvent* record) {
    const HostEvent& event = trace_.host[call];
    ++tasks_.synchronisations;
    if (wait.sync == SyncKind::kDevice) {
      await_all(call);
      return;
    }
    if (wait.sync == SyncKind::kEvent) {
      if (record && record->wait_on_event_correlation >= 0) {
        await(call, device_.last_before_record(*record), rules_.synchronise);
        return;
      }
      if (event.duration_ns < kShortEventSyncNs) return;
      await(call, last_ended(event), rules_.synchronise);
      return;
    }
    await(call, wait.task, rules_.synchronise);
  }

  // The task that ended last before a call did, if it was launched before the call. After an event
  // its stream may have more to do.
  std::int32_t last_ended(const HostEvent& call) const {
    std::int32_t last = -1;
    for (const auto& [key, stream] : device_.streams()) {
      const std::int32_t task = device_.last_launched(stream, call.start_ns, call.end_ns());
      if (task < 0) continue;
      if (last < 0 || recorded_.gpu(task).end_ns() > recorded_.gpu(last).end_ns()) last = task;
    }
    return last;
  }

  void await_all(std::size_t call) {
    for (const auto& [key, stream] : device_.streams()) {
      const std::int32_t task = device_.last_launched(stream, trace_.host[call].start_ns);
      if (task >= 0 && recorded_.gpu(task).end_ns() <= trace_.host[call].end_ns() + kClockSlackNs) {
        await(call, task, rules_.synchronise);
      }
    }
  }

  // A long call that is no launch (cudaFree, cudaMalloc, ...) synchronised if everything launched
  // before it ended before it did, and the last of it inside it.
  void long_call(std::size_t call) {
    const HostEvent& event = trace_.host[call];
    std::int64_t last_end = std::numeric_limits<std::int64_t>::min();
    for (const auto& [key, stream] : device_.streams()) {
      const std::int32_t task = device_.last_launched(stream, event.start_ns);
      if (task >= 0) last_end = std::max(last_end, recorded_.gpu(task).end_ns());
    }
    if (last_end <= event.start_ns || last_end > event.end_ns()) return;
    ++tasks_.synchronisations;
    ++tasks_.inferred_waits;
    await_all(call);
  }

  const Recorded& recorded_;
  const Trace& trace_ = recorded_.trace;
  const DeviceStarts& device_ = recorded_.device;
  const ReplayRules& rules_;
  ReplayTasks& tasks_;  // counts the findings
  HostWaits host_waits_;
};

// Launches of a stream that were not done when a call began, per call; the queue's filling.
std::vector<std::size_t> outstanding(const Recorded& recorded, const Stream& stream) {
  std::vector<std::size_t> counts;
  std::size_t done = 0;
  for (std::size_t i = 0; i < stream.queued.size(); ++i) {
    const std::int64_t begin = recorded.launch_of(stream.queued[i]).start_ns;
    while (done < i && recorded.gpu(stream.queued[done]).end_ns() <= begin) ++done;
    counts.push_back(i - done);
  }
  return counts;
}

// Medians by name of launches that found room: the others may be the majority.
std::vector<double> unblocked_medians(const Recorded& recorded) {
  std::vector<std::vector<double>> by_name(recorded.trace.names.size());
  for (const auto& [key, stream] : recorded.device.streams()) {
    const auto filling = outstanding(recorded, stream);
    for (std::size_t i = 0; i < filling.size(); ++i) {
      const HostEvent& call = recorded.launch_of(stream.queued[i]);
      if (filling[i] < kLeastQueued) by_name[call.name].push_back(us(call.duration_ns));
    }
  }
  return medians_of(by_name);
}

// How many launches the device accepts ahead of its work.
struct QueueDepth {
  std::size_t launches = kDefaultQueueDepth;
  bool is_fitted = false;
};

// Long launches end when a task some launches back does: how many, if they agree.
QueueDepth find_queue_depth(const Recorded& recorded) {
  const std::vector<double> median_us = unblocked_medians(recorded);
  struct Long {
    const Stream* stream;
    std::size_t position;
  };
  std::vector<Long> blocked;
  std::vector<std::size_t> depths;
  for (const auto& [key, stream] : recorded.device.streams()) {
    const auto filling = outstanding(recorded, stream);
    for (std::size_t i = 0; i < filling.size(); ++i) {
      const HostEvent& call = recorded.launch_of(stream.queued[i]);
      const bool long_call =
          us(call.duration_ns) > kLongCallFactor * median_us[call.name] && us(call.duration_ns) > 2;
      if (filling[i] < kLeastQueued || !long_call) continue;
      if (is_copy_call(recorded.trace.name(call))) continue;
      // The last task that ended before the call did.
      std::size_t at = i - filling[i];
      while (at < i && recorded.gpu(stream.queued[at]).end_ns() <= call.end_ns()) ++at;
      if (at == 0) continue;
      depths.push_back(i - (at - 1));
      blocked.push_back({&stream, i});
    }
  }
  if (depths.size() < kQueueSamples) return {};
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
    distances.push_back(std::abs(us(recorded.launch_of(at.stream->queued[at.position]).end_ns() -
                                    recorded.gpu(at.stream->queued[at.position - best]).end_ns())));
  }
  if (best_count * 4 < depths.size() || distances.empty() ||
      median_of(distances) > us(kQueueFitNs)) {
    return {};
  }
  return {.launches = best, .is_fitted = true};
}

// Which task makes room for a launch.
class LaunchQueue {
 public:
  LaunchQueue(const Recorded& recorded, std::size_t depth)
      : recorded_(recorded), depth_(depth), positions_(recorded.trace.gpu.size(), 0) {
    for (const auto& [key, stream] : recorded.device.streams()) {
      for (std::size_t i = 0, place = 0; i < stream.launched.size(); ++i) {
        const std::int32_t task = stream.launched[i];
        if (i > 0 && !recorded.device.same_launch(stream.launched[i - 1], task)) ++place;
        positions_[task] = place;
      }
    }
  }

  // The task that must have ended before this launch finds room; -1: none.
  std::int32_t head(std::int32_t call) const {
    if (recorded_.work.count(call) == 0) return -1;
    const std::int32_t task = recorded_.work.work[recorded_.work.first[call]];
    const std::size_t position = positions_[task];
    if (position < depth_) return -1;
    const GpuEvent& event = recorded_.gpu(task);
    return recorded_.device.streams().at({event.device, event.stream}).queued[position - depth_];
  }

 private:
  const Recorded& recorded_;
  std::size_t depth_;
  std::vector<std::size_t> positions_;  // in the queue of its stream, per GPU event
};

struct Point {
  std::int64_t stamp_ns;
  TaskId task;  // ends here
};

// Segments of the host's threads, and their waits.
class HostLanes {
 public:
  HostLanes(const Recorded& recorded, const ReplayOptions& options, ReplayTasks& tasks,
            TaskGraph& graph)
      : recorded_(recorded), options_(options), tasks_(tasks), graph_(graph) {}

  void add() {
    takes_part_.assign(trace_.threads.size(), false);
    points_.resize(trace_.threads.size());
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      const HostEvent& event = trace_.host[i];
      // Threads that only ask (the watchdog of a communication library) are left out. One that
      // marks the iterations may have neither ops nor launches.
      if (event.kind != HostKind::kCall || recorded_.work.count(i) > 0) {
        takes_part_[event.thread] = true;
      }
    }
    for (std::int32_t top : recorded_.ops.top_level) {
      op_ends_.push_back({recorded_.host(top).end_ns(), recorded_.host(top).thread, top});
    }
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      if (recorded_.work.count(i) > 0 && recorded_.ops.call_owner[i] < 0) {
        op_ends_.push_back(
            {trace_.host[i].end_ns(), trace_.host[i].thread, static_cast<std::int32_t>(i)});
      }
    }
    std::sort(op_ends_.begin(), op_ends_.end(),
              [](const OpEnd& a, const OpEnd& b) { return a.stamp_ns < b.stamp_ns; });
    calls_of_op_.assign(recorded_.ops.top_level.size(), 0);
    for (std::int32_t owner : recorded_.ops.call_owner) {
      if (owner >= 0) ++calls_of_op_[owner];
    }
    for (std::size_t i = 0; i < trace_.host.size();) {
      std::size_t end = i;
      while (end < trace_.host.size() && trace_.host[end].thread == trace_.host[i].thread) ++end;
      if (takes_part_[trace_.host[i].thread]) add_thread(i, end);
      i = end;
    }
    tasks_.device_lane = tasks_.first_lane + next_lane_;
  }

  // `exits`: of each GPU event, the task at whose end its work is done.
  void connect(TaskId clock, const std::vector<TaskId>& exits) {
    for (const auto& [stamp, task, thread] : first_points_) {
      connect_first(clock, stamp, task, thread);
    }
    for (const auto& [event, task] : hand_overs_) {
      graph_.add_edge(tasks_.ends[event], task, 0, TaskGraph::EdgeKind::kInferred);
    }
    for (const auto& [source, task, lag] : host_edges_) graph_.add_edge(exits[source], task, lag);
  }

 private:
  // Ends of top-level ops of all threads, for hand-overs.
  struct OpEnd {
    std::int64_t stamp_ns;
    std::int32_t thread, event;
  };

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
    walk.lane = tasks_.first_lane + next_lane_++;
    walk.thread = trace_.host[begin].thread;
    walk.cursor_ns = trace_.host[begin].start_ns;
    walk.last = graph_.add_task(walk.lane, 0);
    first_points_.push_back({walk.cursor_ns, walk.last, walk.thread});
    note_point(walk);
    auto top = static_cast<std::size_t>(std::lower_bound(recorded_.ops.top_level.begin(),
                                                         recorded_.ops.top_level.end(),
                                                         static_cast<std::int32_t>(begin)) -
                                        recorded_.ops.top_level.begin());
    for (std::size_t i = begin; i < end; ++i) {
      const HostEvent& event = trace_.host[i];
      close_until(walk, event.start_ns);
      advance(walk, event.start_ns);
      tasks_.begins[i] = walk.last;
      if (event.kind == HostKind::kCall) {
        call(walk, static_cast<std::int32_t>(i));
        continue;
      }
      if (top < recorded_.ops.top_level.size() &&
          recorded_.ops.top_level[top] == static_cast<std::int32_t>(i)) {
        walk.top = static_cast<std::int32_t>(top++);
        walk.calls_seen = 0;
      }
      open(walk, static_cast<std::int32_t>(i));
    }
    close_until(walk, std::numeric_limits<std::int64_t>::max());
  }

  void open(Walk& walk, std::int32_t event) {
    walk.open.push_back(event);
    walk.open_ops += recorded_.host(event).kind == HostKind::kOp;
    walk.open_loaders += loads_data(event);
  }

  bool loads_data(std::int32_t event) const {
    return recorded_.host(event).kind == HostKind::kAnnotation &&
           is_data_loading(trace_.name(recorded_.host(event)));
  }

  // Innermost first, so that every end finds the right owner for the time before it.
  void close_until(Walk& walk, std::int64_t stamp_ns) {
    while (!walk.open.empty() && recorded_.host(walk.open.back()).end_ns() <= stamp_ns) {
      const std::int32_t event = walk.open.back();
      advance(walk, recorded_.host(event).end_ns());
      tasks_.ends[event] = walk.last;
      walk.open.pop_back();
      walk.open_ops -= recorded_.host(event).kind == HostKind::kOp;
      walk.open_loaders -= loads_data(event);
      if (walk.open_ops == 0) walk.top = -1;
    }
  }

  Term term(const Walk& walk) const {
    if (walk.open_loaders > 0) return Term::kDataLoading;
    if (walk.top < 0) return Term::kT1;
    const std::size_t calls = calls_of_op_[walk.top];
    if (calls == 0) return Term::kTx;
    if (walk.calls_seen == 0) return Term::kT2;
    return walk.calls_seen >= calls ? Term::kT3 : Term::kT5;
  }

  TaskId add_segment(Walk& walk, std::int64_t duration_ns, Term kind, std::int32_t owner) {
    const bool loading = walk.open_loaders > 0;
    const double scale = loading ? 1 : options_.scale_host;
    walk.last = graph_.add_task(walk.lane, us(duration_ns) * scale, 0, owner,
                                static_cast<std::int32_t>(loading ? Term::kDataLoading : kind));
    if (loading) tasks_.data_loading.push_back(walk.last);
    return walk.last;
  }

  void note_point(const Walk& walk) { points_[walk.thread].push_back({walk.cursor_ns, walk.last}); }

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
      ++tasks_.hand_overs;
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
      if (at->thread != thread && takes_part_[at->thread]) return &*at;
    }
    return nullptr;
  }

  void call(Walk& walk, std::int32_t event) {
    const HostEvent& at = recorded_.host(event);
    const std::int64_t begin = walk.cursor_ns, end = std::max(begin, at.end_ns());
    const bool launch = recorded_.work.count(event) > 0 || recorded_.ops.call_owner[event] >= 0;
    std::int64_t own = end - begin;
    bool queues = false;
    std::vector<std::pair<std::int32_t, double>> awaited;  // task, lag
    const auto wait_for = [&](std::int32_t task) {
      std::int64_t done = recorded_.gpu(task).end_ns();
      if (const auto* tail = device_.tail(task)) {
        const std::int64_t from =
            tail->launch < 0 ? done : std::max(done, recorded_.host(tail->launch).end_ns());
        done = std::min(end, from + static_cast<std::int64_t>(tail->us * 1e3));
      }
      own = std::min(own, std::max<std::int64_t>(0, end - done));
      // A large pageable copy lets its call go before its last byte has arrived.
      awaited.emplace_back(task, std::min(0.0, us(end - done)));
    };
    if (const auto waits = host_waits_.find(event); waits != host_waits_.end()) {
      for (std::int32_t task : waits->second.tasks) wait_for(task);
      if (!waits->second.with_edges) awaited.clear();
    }
    if (const std::int32_t task = queue_.head(event);
        task >= 0 && recorded_.gpu(task).end_ns() <= end) {
      wait_for(task);
      if (!options_.rules.launch_queue) awaited.pop_back();
      queues = options_.rules.launch_queue;
    }
    const std::int32_t owner = walk.open.empty() ? -1 : walk.open.back();
    const TaskId task = add_segment(walk, own, launch ? Term::kT4 : term(walk), owner);
    if (queues) tasks_.queued_launches.emplace_back(task, awaited.back().first);
    for (const auto& [source, lag] : awaited) host_edges_.push_back({source, task, lag});
    walk.calls_seen += launch;
    walk.cursor_ns = end;
    tasks_.ends[event] = task;
    note_point(walk);
  }

  // A thread that appears later hangs on the last point before it of another thread.
  void connect_first(TaskId clock, std::int64_t stamp, TaskId task, std::int32_t thread) {
    const Point* last = nullptr;
    bool loading = false;  // the other thread loaded data then
    for (std::size_t other = 0; other < points_.size(); ++other) {
      if (static_cast<std::int32_t>(other) == thread || points_[other].empty()) continue;
      const auto& points = points_[other];
      const auto after =
          std::upper_bound(points.begin(), points.end(), stamp,
                           [](std::int64_t at, const Point& p) { return at < p.stamp_ns; });
      if (after == points.begin()) continue;
      const auto at = after - 1;
      // If two threads begin together, the one listed first leads.
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

  const Recorded& recorded_;
  const Trace& trace_ = recorded_.trace;
  const DeviceStarts& device_ = recorded_.device;
  const ReplayOptions& options_;
  ReplayTasks& tasks_;
  TaskGraph& graph_;
  const HostWaits host_waits_ = HostWaitFinder(recorded_, options_.rules, tasks_).find();
  const LaunchQueue queue_{recorded_, tasks_.queue_depth};
  std::vector<bool> takes_part_;
  std::int32_t next_lane_ = 0;
  std::vector<OpEnd> op_ends_;
  std::vector<std::size_t> calls_of_op_;
  std::vector<std::vector<Point>> points_;  // per thread
  std::vector<FirstPoint> first_points_;
  std::vector<HandOver> hand_overs_;
  std::vector<HostEdge> host_edges_;
};

// Work of the device's streams, and its waits.
class DeviceLanes {
 public:
  DeviceLanes(const Recorded& recorded, const ReplayOptions& options,
              const std::vector<bool>& meets, ReplayTasks& tasks, TaskGraph& graph)
      : recorded_(recorded), options_(options), meets_(meets), tasks_(tasks), graph_(graph) {}

  void add() {
    exits_.assign(trace_.gpu.size(), -1);
    // Tasks of all streams in start order, so that most edges point forward.
    std::vector<std::int32_t> order(trace_.gpu.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return recorded_.gpu(a).start_ns < recorded_.gpu(b).start_ns;
    });
    for (std::int32_t i : order) add_device_task(i);
    tasks_.end_lane = tasks_.device_lane + device_.lanes();
  }

  void connect(TaskId clock) {
    for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
      connect_task(clock, static_cast<std::int32_t>(i));
    }
  }

  const std::vector<TaskId>& exits() const { return exits_; }

 private:
  double scaled_kernel(std::int32_t task) const {
    const GpuEvent& event = recorded_.gpu(task);
    const bool scaled = event.kind == GpuKind::kKernel && !device_.is_collective(task);
    return scaled ? options_.scale_kernels : 1;
  }

  void add_device_task(std::int32_t i) {
    const GpuEvent& event = recorded_.gpu(i);
    const std::int32_t previous = device_.previous(i);
    const std::int32_t lane = tasks_.device_lane + device_.lane(i);
    double gap = device_.gap_us(i);
    if (event.launch < 0) {
      ++tasks_.without_launch;
      // Launched before the window: earlier work of the stream is the initial condition.
      if (previous >= 0) gap = us(event.start_ns - recorded_.gpu(previous).end_ns());
    } else if (recorded_.work.count(event.launch) > 1) {
      ++tasks_.graph_tasks;
    }
    if (const auto* held = device_.unrecorded(i)) {
      const double duration =
          held->since_begin ? std::max(0.0, us(event.start_ns) - gap) : held->us;
      tasks_.entries[i] = add_unrecorded(lane, duration, previous >= 0 ? gap : 0, i);
    }
    const Term kind = device_.is_collective(i)       ? Term::kCollective
                      : event.kind == GpuKind::kCopy ? Term::kCopy
                      : event.kind == GpuKind::kSet  ? Term::kSet
                                                     : Term::kKernel;
    const bool meets = !meets_.empty() && meets_[i];
    const TaskId task = graph_.add_task(lane, meets ? 0 : us(event.duration_ns) * scaled_kernel(i),
                                        gap, i, static_cast<std::int32_t>(kind));
    tasks_.arrivals[i] = task;
    tasks_.device[i] =
        meets ? graph_.add_task(lane, 0, 0, i, static_cast<std::int32_t>(kind)) : task;
    if (tasks_.entries[i] < 0) tasks_.entries[i] = task;
    exits_[i] = tasks_.device[i];
    if (const auto* tail = device_.tail(i)) {
      exits_[i] = add_unrecorded(lane, tail->us, 0, i);
      if (tail->launch >= 0) {
        graph_.add_edge(tasks_.ends[tail->launch], exits_[i]);
      }
    }
  }

  TaskId add_unrecorded(std::int32_t lane, double duration_us, double gap_us, std::int32_t event) {
    return graph_.add_task(lane, duration_us * options_.scale_unrecorded, gap_us, event,
                           static_cast<std::int32_t>(Term::kUnrecorded));
  }

  void connect_task(TaskId clock, std::int32_t i) {
    const GpuEvent& event = recorded_.gpu(i);
    const auto* unrecorded = device_.unrecorded(i);
    const bool since_begin = unrecorded && unrecorded->since_begin;
    // Work that has run since before the window was launched then, including the task itself.
    const TaskId begin = since_begin ? tasks_.arrivals[i] : tasks_.entries[i];
    if (since_begin) graph_.add_edge(clock, tasks_.entries[i]);
    if (unrecorded && unrecorded->after >= 0) {
      graph_.add_edge(tasks_.device[unrecorded->after], tasks_.entries[i], 0,
                      TaskGraph::EdgeKind::kInferred);
    }
    if (event.launch >= 0) {
      const auto call = event.launch;
      graph_.add_edge(device_.blocks_its_call(i) ? tasks_.begins[call] : tasks_.ends[call], begin,
                      device_.latency_us(i));
    } else if (device_.previous(i) < 0) {
      graph_.add_edge(clock, begin, us(event.start_ns));
    }
    for (const DeviceStarts::Wait& wait : device_.waits(i)) {
      if (!(wait.held ? options_.rules.held_machine : options_.rules.cross_stream)) continue;
      double lag = wait.lag_us.value_or(device_.event_lag_us());
      if (wait.held) lag *= scaled_kernel(wait.task);
      graph_.add_edge(
          tasks_.device[wait.task], begin, lag,
          wait.inferred ? TaskGraph::EdgeKind::kInferred : TaskGraph::EdgeKind::kCertain);
      ++tasks_.event_waits;
    }
  }

  const Recorded& recorded_;
  const Trace& trace_ = recorded_.trace;
  const DeviceStarts& device_ = recorded_.device;
  const ReplayOptions& options_;
  const std::vector<bool>& meets_;
  ReplayTasks& tasks_;
  TaskGraph& graph_;
  std::vector<TaskId> exits_;  // per GPU event: unrecorded work after it, or its own task
};

}  // namespace

bool is_data_loading(std::string_view annotation) {
  return annotation.starts_with("enumerate(DataLoader)");
}

ReplayTasks add_replay_tasks(const Trace& trace, const ReplayOptions& options, double start_us,
                             std::int32_t first_lane, const std::vector<bool>& meets,
                             TaskGraph& graph) {
  const Recorded recorded(trace);
  const QueueDepth queue = find_queue_depth(recorded);
  const std::vector<TaskId> no_host(trace.host.size(), -1), no_device(trace.gpu.size(), -1);
  ReplayTasks tasks{.first_lane = first_lane,
                    .begins = no_host,
                    .ends = no_host,
                    .device = no_device,
                    .arrivals = no_device,
                    .entries = no_device,
                    .inferred_waits = recorded.device.inferred_waits(),
                    .held_tasks = recorded.device.held_tasks(),
                    .unrecorded = recorded.device.all_unrecorded(),
                    .queue_depth = queue.launches,
                    .queue_depth_fitted = queue.is_fitted};
  HostLanes host(recorded, options, tasks, graph);
  host.add();
  DeviceLanes device(recorded, options, meets, tasks, graph);
  device.add();
  const TaskId clock = graph.add_task(TaskGraph::kNoLane, start_us);
  host.connect(clock, device.exits());
  device.connect(clock);
  return tasks;
}

}  // namespace perfmodel
