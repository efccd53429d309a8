#include "replay_tasks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "microseconds.hpp"
#include "overheads/statistics.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "perfmodel/prediction.hpp"

namespace perfmodel {
namespace {

using TaskId = TaskGraph::TaskId;

// Borders between what happens and what waits, in nanoseconds. That of the hand-over may be moved
// by an order of magnitude without a change on any public trace.
constexpr std::int64_t kHandOverNs = 50'000;   // idle gap of a thread that may be a wait
constexpr std::int64_t kLongCallNs = 100'000;  // cudaFree and its like: may synchronise
constexpr double kLongCallFactor = 5;          // and longer than this many medians of its name
constexpr std::int64_t kShortEventSyncNs = 20'000;
constexpr std::int64_t kClockSlackNs = 10'000;  // host and device clocks may differ by this
constexpr std::size_t kDefaultQueueDepth = 1024;
constexpr std::int64_t kQueueFitNs = 50'000;
constexpr std::size_t kQueueSamples = 8;
constexpr std::size_t kLeastQueued = 64;

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
        work_(work_of_calls(trace)),
        device_(trace, waits_, work_),
        streams_(device_.streams()) {
    made_.first_lane = first_lane;
  }

  ReplayTasks build() {
    made_.begins.assign(trace_.host.size(), -1);
    made_.ends.assign(trace_.host.size(), -1);
    made_.device.assign(trace_.gpu.size(), -1);
    made_.arrivals.assign(trace_.gpu.size(), -1);
    made_.entries.assign(trace_.gpu.size(), -1);
    exits_.assign(trace_.gpu.size(), -1);
    points_.resize(trace_.threads.size());
    made_.inferred_waits = device_.inferred_waits();
    made_.held_tasks = device_.held_tasks();
    made_.unrecorded = device_.all_unrecorded();
    find_queue_depth();
    find_host_waits();
    add_host_lanes();
    add_device_lanes();
    connect();
    return std::move(made_);
  }

 private:
  const HostEvent& host(std::int32_t i) const { return trace_.host[i]; }
  const GpuEvent& gpu(std::int32_t i) const { return trace_.gpu[i]; }
  const HostEvent& launch_of(std::int32_t task) const { return host(gpu(task).launch); }
  double scaled_kernel(std::int32_t task) const {
    const GpuEvent& event = gpu(task);
    const bool scaled = event.kind == GpuKind::kKernel && !device_.is_collective(task);
    return scaled ? options_.scale_kernels : 1;
  }

  using Stream = DeviceStarts::Stream;

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
        await(call, device_.last_before_record(*record), options_.rules.synchronise);
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
      const std::int32_t task = device_.last_launched(stream, call.start_ns, call.end_ns());
      if (task >= 0 && (last < 0 || gpu(task).end_ns() > gpu(last).end_ns())) last = task;
    }
    return last;
  }

  void await_all(std::size_t call) {
    for (const auto& [key, stream] : streams_) {
      const std::int32_t task = device_.last_launched(stream, trace_.host[call].start_ns);
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
      const std::int32_t task = device_.last_launched(stream, event.start_ns);
      if (task >= 0) last_end = std::max(last_end, gpu(task).end_ns());
    }
    if (last_end <= event.start_ns || last_end > event.end_ns()) return;
    ++made_.synchronisations;
    ++made_.inferred_waits;
    await_all(call);
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
        takes_part_[event.thread] = true;
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
      if (owner >= 0) ++calls_of_op_[owner];
    }
    for (std::size_t i = 0; i < trace_.host.size();) {
      std::size_t end = i;
      while (end < trace_.host.size() && trace_.host[end].thread == trace_.host[i].thread) ++end;
      if (takes_part_[trace_.host[i].thread]) add_thread(i, end);
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
      made_.ends[event] = walk.last;
      walk.open.pop_back();
      walk.open_ops -= host(event).kind == HostKind::kOp;
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
    if (loading) made_.data_loading.push_back(walk.last);
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
      if (at->thread != thread && takes_part_[at->thread]) return &*at;
    }
    return nullptr;
  }

  void call(Walk& walk, std::int32_t event) {
    const HostEvent& at = host(event);
    const std::int64_t begin = walk.cursor_ns, end = std::max(begin, at.end_ns());
    const bool launch = work_.count(event) > 0 || ops_.call_owner[event] >= 0;
    std::int64_t own = end - begin;
    bool queues = false;
    std::vector<std::pair<std::int32_t, double>> awaited;  // task, lag
    const auto wait_for = [&](std::int32_t task) {
      std::int64_t done = gpu(task).end_ns();
      if (const auto* tail = device_.tail(task)) {
        const std::int64_t from =
            tail->launch < 0 ? done : std::max(done, host(tail->launch).end_ns());
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
    if (const std::int32_t task = queue_head(event); task >= 0 && gpu(task).end_ns() <= end) {
      wait_for(task);
      if (!options_.rules.launch_queue) awaited.pop_back();
      queues = options_.rules.launch_queue;
    }
    const std::int32_t owner = walk.open.empty() ? -1 : walk.open.back();
    const TaskId task = add_segment(walk, own, launch ? Term::kT4 : term(walk), owner);
    if (queues) made_.queued_launches.emplace_back(task, awaited.back().first);
    for (const auto& [source, lag] : awaited) host_edges_.push_back({source, task, lag});
    walk.calls_seen += launch;
    walk.cursor_ns = end;
    made_.ends[event] = task;
    note_point(walk);
  }

  // The task that must have ended before this launch finds room in the queue.
  std::int32_t queue_head(std::int32_t call) {
    if (work_.count(call) == 0) return -1;
    if (queue_position_.empty()) {
      queue_position_.assign(trace_.gpu.size(), 0);
      for (const auto& [key, stream] : streams_) {
        for (std::size_t i = 0, place = 0; i < stream.launched.size(); ++i) {
          if (i > 0 && !device_.same_launch(stream.launched[i - 1], stream.launched[i])) ++place;
          queue_position_[stream.launched[i]] = place;
        }
      }
    }
    const std::int32_t task = work_.work[work_.first[call]];
    const Stream& stream = streams_.at({gpu(task).device, gpu(task).stream});
    const std::size_t position = queue_position_[task];
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
    for (std::int32_t i : order) add_device_task(i);
    made_.end_lane = made_.device_lane + device_.lanes();
  }

  void add_device_task(std::int32_t i) {
    const GpuEvent& event = gpu(i);
    const std::int32_t previous = device_.previous(i);
    const std::int32_t lane = made_.device_lane + device_.lane(i);
    double gap = device_.gap_us(i);
    if (event.launch < 0) {
      ++made_.without_launch;
      // Launched before the window: what the stream does until then is the initial condition.
      if (previous >= 0) gap = us(event.start_ns - gpu(previous).end_ns());
    } else if (work_.count(event.launch) > 1) {
      ++made_.graph_tasks;
    }
    if (const auto* held = device_.unrecorded(i)) {
      const double duration =
          held->since_begin ? std::max(0.0, us(event.start_ns) - gap) : held->us;
      made_.entries[i] = add_unrecorded(lane, duration, previous >= 0 ? gap : 0, i);
    }
    const Term kind = device_.is_collective(i)       ? Term::kCollective
                      : event.kind == GpuKind::kCopy ? Term::kCopy
                      : event.kind == GpuKind::kSet  ? Term::kSet
                                                     : Term::kKernel;
    const bool meets = !meets_.empty() && meets_[i];
    const TaskId task = graph_.add_task(lane, meets ? 0 : us(event.duration_ns) * scaled_kernel(i),
                                        gap, i, static_cast<std::int32_t>(kind));
    made_.arrivals[i] = task;
    made_.device[i] =
        meets ? graph_.add_task(lane, 0, 0, i, static_cast<std::int32_t>(kind)) : task;
    if (made_.entries[i] < 0) made_.entries[i] = task;
    exits_[i] = made_.device[i];
    if (const auto* tail = device_.tail(i)) {
      exits_[i] = add_unrecorded(lane, tail->us, 0, i);
      if (tail->launch >= 0) {
        graph_.add_edge(made_.ends[tail->launch], exits_[i]);
      }
    }
  }

  TaskId add_unrecorded(std::int32_t lane, double duration_us, double gap_us, std::int32_t event) {
    return graph_.add_task(lane, duration_us * options_.scale_unrecorded, gap_us, event,
                           static_cast<std::int32_t>(Term::kUnrecorded));
  }

  // ---- edges
  // -------------------------------------------------------------------------------------

  TaskId device_end(std::int32_t i) const { return made_.device[i]; }
  // Of the unrecorded work before a task, if there is any; and of that behind it.
  TaskId entry(std::int32_t i) const { return made_.entries[i]; }
  TaskId device_begin(std::int32_t i) const { return made_.arrivals[i]; }
  TaskId exit(std::int32_t i) const { return exits_[i]; }

  void connect() {
    const TaskId clock = graph_.add_task(TaskGraph::kNoLane, start_us_);
    for (const auto& [stamp, task, thread] : first_points_)
      connect_first(clock, stamp, task, thread);
    for (const auto& [event, task] : hand_overs_) {
      graph_.add_edge(made_.ends[event], task, 0, TaskGraph::EdgeKind::kInferred);
    }
    for (const auto& [source, task, lag] : host_edges_) graph_.add_edge(exit(source), task, lag);
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
    const auto* unrecorded = device_.unrecorded(i);
    const bool since_begin = unrecorded && unrecorded->since_begin;
    // What ran since before the window was launched then, the task itself in it.
    const TaskId begin = since_begin ? device_begin(i) : entry(i);
    if (since_begin) graph_.add_edge(clock, entry(i));
    if (unrecorded && unrecorded->after >= 0) {
      graph_.add_edge(device_end(unrecorded->after), entry(i), 0, TaskGraph::EdgeKind::kInferred);
    }
    if (event.launch >= 0) {
      const auto call = event.launch;
      graph_.add_edge(device_.blocks_its_call(i) ? made_.begins[call] : made_.ends[call], begin,
                      device_.latency_us(i));
    } else if (device_.previous(i) < 0) {
      graph_.add_edge(clock, begin, us(event.start_ns));
    }
    for (const DeviceStarts::Wait& wait : device_.waits(i)) {
      if (!(wait.held ? options_.rules.held_machine : options_.rules.cross_stream)) continue;
      double lag = wait.lag_us.value_or(device_.event_lag_us());
      if (wait.held) lag *= scaled_kernel(wait.task);
      graph_.add_edge(
          device_end(wait.task), begin, lag,
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
  DeviceStarts device_;
  const DeviceStarts::Streams& streams_;
  std::vector<bool> takes_part_;
  std::vector<TaskId> exits_;  // per GPU event: unrecorded work behind it, or its own task
  std::int32_t next_lane_ = 0;
  std::unordered_map<std::int32_t, HostWait> host_waits_;  // by host event
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
