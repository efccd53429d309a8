#include "call_waits.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/large_pages.hpp"
#include "base/sort_runs.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kRecentCopyNs = 200'000;
// A copy from pinned memory may begin this long before its call ends.
constexpr std::int64_t kEarlyStartNs = 10'000;
constexpr std::int64_t kPageableBorderBytes = 64 * 1024;  // CUDA: smaller ones are staged

// Device work of one stream in launch order, for "what was launched before this call?".
struct StreamLog {
  std::vector<std::int64_t> launch_start_ns;
  std::vector<std::int32_t> latest_end;  // task with the latest end among the launched so far
};

class Waits {
 public:
  explicit Waits(const Trace& trace) : trace_(trace), work_(work_of_calls(trace)) {
    log_launches();
  }

  std::vector<CallWait> find() {
    std::vector<CallWait> waits;
    reserve_in_large_pages(waits, trace_.host.size());
    waits.resize(trace_.host.size());
    std::unordered_map<std::int64_t, std::int64_t> synced_stream;  // correlation -> stream
    for (const SyncEvent& sync : trace_.syncs) {
      if (sync.stream >= 0 &&
          trace_.names.text(sync.kind).find("Stream Sync") != std::string::npos) {
        synced_stream[sync.correlation] = sync.stream;
      }
    }
    std::vector<std::optional<CallName>> known(trace_.names.size());
    std::int32_t thread = -1;
    std::int64_t last_copy_ns = 0, last_copy_stream = -1;
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      const HostEvent& event = trace_.host[i];
      if (event.thread != thread) {
        thread = event.thread;
        last_copy_stream = -1;
      }
      if (event.kind != HostKind::kCall) continue;
      std::optional<CallName>& name = known[event.name];
      if (!name) name = {sync_kind(trace_.name(event)), is_copy_call(trace_.name(event))};
      if (const SyncKind sync = name->sync; sync != SyncKind::kNone) {
        std::int64_t stream = -1;
        if (sync == SyncKind::kStream) {
          if (auto known = synced_stream.find(event.correlation); known != synced_stream.end()) {
            stream = known->second;
          } else if (last_copy_stream >= 0 && event.start_ns - last_copy_ns < kRecentCopyNs) {
            stream = last_copy_stream;
          }
        }
        waits[i] = sync_wait(event, sync, stream);
      } else if (name->copies && work_.count(i) > 0) {
        const std::int32_t task = work_.work[work_.first[i]];
        last_copy_ns = event.end_ns();
        last_copy_stream = trace_.gpu[task].stream;
        waits[i] = copy_wait(event, task);
      }
    }
    return waits;
  }

 private:
  struct CallName {
    SyncKind sync = SyncKind::kNone;
    bool copies = false;
  };

  void log_launches() {
    std::vector<std::int32_t> order;
    for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
      if (trace_.gpu[i].launch >= 0) order.push_back(static_cast<std::int32_t>(i));
    }
    sort_runs(order,
              [&](std::int32_t a, std::int32_t b) { return launch_start(a) < launch_start(b); });
    for (std::int32_t task : order) {
      StreamLog& log = streams_[{gpu(task).device, gpu(task).stream}];
      std::int32_t latest = task;
      if (!log.latest_end.empty() && gpu(log.latest_end.back()).end_ns() > gpu(task).end_ns()) {
        latest = log.latest_end.back();
      }
      log.launch_start_ns.push_back(launch_start(task));
      log.latest_end.push_back(latest);
    }
  }

  const GpuEvent& gpu(std::int32_t task) const { return trace_.gpu[task]; }
  std::int64_t launch_start(std::int32_t task) const {
    return trace_.host[gpu(task).launch].start_ns;
  }

  std::int32_t last_launched(const StreamLog& log, std::int64_t before_ns) const {
    const auto after =
        std::lower_bound(log.launch_start_ns.begin(), log.launch_start_ns.end(), before_ns);
    if (after == log.launch_start_ns.begin()) return -1;
    return log.latest_end[static_cast<std::size_t>(after - log.launch_start_ns.begin()) - 1];
  }

  CallWait sync_wait(const HostEvent& call, SyncKind kind, std::int64_t stream) const {
    CallWait wait{.kind = CallWait::Kind::kSync, .sync = kind};
    for (const auto& [key, log] : streams_) {
      if (stream >= 0 && key.second != stream) continue;
      const std::int32_t task = last_launched(log, call.start_ns);
      if (task < 0) continue;
      // Without a stream argument: work that outlives the call was not waited for.
      if (stream < 0 && kind != SyncKind::kDevice && gpu(task).end_ns() > call.end_ns()) continue;
      if (wait.task < 0 || gpu(task).end_ns() > gpu(wait.task).end_ns()) wait.task = task;
    }
    if (wait.task >= 0) {
      wait.wait_ns =
          std::clamp<std::int64_t>(gpu(wait.task).end_ns() - call.start_ns, 0, call.duration_ns);
    }
    return wait;
  }

  CallWait copy_wait(const HostEvent& call, std::int32_t task) const {
    const GpuEvent& copy = gpu(task);
    const std::string_view name = trace_.name(copy);
    const bool to_device = name.find("HtoD") != std::string_view::npos;
    const bool on_device = name.find("DtoD") != std::string_view::npos;
    const bool large = copy.bytes > kPageableBorderBytes;
    const bool staged = to_device && large && copy.start_ns < call.end_ns() - kEarlyStartNs;
    if (on_device || (call.end_ns() < copy.end_ns() && !staged)) return {};
    if (to_device && !large && trace_.name(call) != "hipMemcpyWithStream") return {};
    return {
        .kind = CallWait::Kind::kBlockingCopy,
        .task = task,
        .wait_ns = std::clamp<std::int64_t>(copy.end_ns() - call.start_ns, 0, call.duration_ns)};
  }

  const Trace& trace_;
  CallWork work_;
  std::map<std::pair<std::int16_t, std::int64_t>, StreamLog> streams_;  // by device and number
};

}  // namespace

CallWork work_of_calls(const Trace& trace) {
  CallWork result;
  result.first.assign(trace.host.size() + 1, 0);
  for (const GpuEvent& event : trace.gpu) {
    if (event.launch >= 0) ++result.first[static_cast<std::size_t>(event.launch) + 1];
  }
  for (std::size_t i = 1; i < result.first.size(); ++i) result.first[i] += result.first[i - 1];
  result.work.resize(result.first.back());
  std::vector<std::uint32_t> next(result.first.begin(), result.first.end() - 1);
  for (std::size_t i = 0; i < trace.gpu.size(); ++i) {
    const std::int32_t launch = trace.gpu[i].launch;
    if (launch >= 0) result.work[next[launch]++] = static_cast<std::int32_t>(i);
  }
  return result;
}

std::vector<CallWait> find_call_waits(const Trace& trace) { return Waits(trace).find(); }

}  // namespace perfmodel
