#include "link_launches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/sort_runs.hpp"
#include "perfmodel/graph/detail/event_names.hpp"

namespace perfmodel {
namespace {

constexpr std::int64_t kSameStampNs = 1'000;  // whole microseconds

struct CallKind {
  bool asked = false, launch = false, kernel = false, copy = false, graph = false;
  SyncKind sync = SyncKind::kNone;
};

using CallOfId = std::pair<std::int64_t, std::int32_t>;

// The first call of each id, by id. Leads from it to the others by `next`.
std::vector<CallOfId> first_calls(const Trace& trace, std::int64_t least_id,
                                  std::vector<std::int32_t>& next) {
  std::vector<CallOfId> calls;
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (event.kind != HostKind::kCall || event.correlation < least_id) continue;
    calls.emplace_back(event.correlation, static_cast<std::int32_t>(i));
  }
  sort_runs(calls);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto [id, call] = calls[i];
    if (kept == 0 || calls[kept - 1].first != id) {
      calls[kept++] = {id, call};
      continue;
    }
    if (next.empty()) next.assign(trace.host.size(), -1);
    next[call] = std::exchange(next[calls[kept - 1].second], call);
  }
  calls.resize(kept);
  return calls;
}

class Linker {
 public:
  explicit Linker(Trace& trace) : trace_(trace), kinds_(trace.names.size()) {}

  void run() {
    count_zeros();
    by_correlation();
    leave_out_twins();
    find_homes();
    mark_launches();
    join_nested();
  }

 private:
  HostEvent& host(std::int32_t i) { return trace_.host[i]; }
  GpuEvent& gpu(std::int32_t i) { return trace_.gpu[i]; }

  const CallKind& kind(NameId name) {
    CallKind& known = kinds_[name];
    if (!known.asked) {
      const std::string_view text = trace_.names.text(name);
      known = {.asked = true,
               .launch = is_launch_call(text),
               .kernel = is_kernel_call(text),
               .copy = is_copy_call(text),
               .graph = is_graph_launch_call(text),
               .sync = sync_kind(text)};
    }
    return known;
  }

  void count_zeros() {
    std::size_t calls = 0, work = 0;
    for (const HostEvent& event : trace_.host) {
      calls += event.kind == HostKind::kCall && event.correlation == 0;
    }
    for (const GpuEvent& event : trace_.gpu) work += event.correlation == 0;
    zero_is_id_ = calls <= 1 && work <= 1;
  }

  bool is_id(std::int64_t correlation) const {
    return correlation > 0 || (correlation == 0 && zero_is_id_);
  }

  void by_correlation() {
    const auto calls = first_calls(trace_, zero_is_id_ ? 0 : 1, next_);
    works_.assign(trace_.host.size(), 0);
    auto at = calls.begin();
    for (GpuEvent& event : trace_.gpu) {
      event.launch = -1;
      const std::int64_t id = event.correlation;
      if (!is_id(id)) continue;
      // The next work of a stream mostly has the next call.
      if (at == calls.end() || ++at == calls.end() || at->first != id) {
        at = std::ranges::lower_bound(calls, id, {}, &CallOfId::first);
      }
      if (at == calls.end() || at->first != id) continue;
      event.launch = best_call(at->second, event.start_ns);
      ++works_[event.launch];
    }
  }

  // Chooses one of the calls that share an id: a launch before another call, then the last one that
  // began before the work did, then the first.
  std::int32_t best_call(std::int32_t call, std::int64_t start_ns) {
    if (next_.empty() || next_[call] < 0) return call;
    std::int32_t best = -1;
    const auto rank = [&](std::int32_t at) {
      const bool before = host(at).start_ns <= start_ns;
      return std::array<std::int64_t, 3>{kind(host(at).name).launch, before,
                                         before ? host(at).start_ns : -host(at).start_ns};
    };
    for (; call >= 0; call = next_[call]) {
      if (best < 0 || rank(call) > rank(best)) best = call;
    }
    return best;
  }

  bool twins(const GpuEvent& a, const GpuEvent& b) const {
    return a.name == b.name && a.kind == b.kind &&
           std::abs(a.start_ns - b.start_ns) <= kSameStampNs &&
           std::abs(a.duration_ns - b.duration_ns) <= kSameStampNs;
  }

  // Kernels that share a call which launches one: records of the same kernel are left out, the
  // others may belong to other calls.
  void leave_out_twins() {
    std::unordered_map<std::int32_t, std::int32_t> first_of;
    std::vector<bool> twin(trace_.gpu.size(), false);
    std::size_t left_out = 0;
    for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
      GpuEvent& event = trace_.gpu[i];
      if (event.launch < 0 || works_[event.launch] < 2) continue;
      if (kind(host(event.launch).name).graph) continue;
      const auto [at, added] = first_of.try_emplace(event.launch, static_cast<std::int32_t>(i));
      if (added) continue;
      if (twins(gpu(at->second), event)) {
        twin[i] = true;
        --works_[event.launch];
        ++left_out;
      }
    }
    if (left_out == 0) return;
    std::size_t at = 0;
    std::erase_if(trace_.gpu, [&](const GpuEvent&) { return twin[at++]; });
    trace_.recording.say(
        "recorded_twice", left_out,
        fmt::format("{} kernels, copies or sets are recorded twice (same call, name "
                    "and times): they count once",
                    left_out));
  }

  static constexpr std::size_t kWorkKinds = 3;

  // Work that needs a launch of its own, and launches that have no work; by kind of work.
  void find_homes() {
    std::array<std::vector<std::int32_t>, kWorkKinds> homeless;
    std::unordered_map<std::int32_t, std::size_t> seen;
    std::size_t shared = 0, without_id = 0;
    for (std::size_t i = 0; i < trace_.gpu.size(); ++i) {
      const GpuEvent& event = trace_.gpu[i];
      if (event.launch >= 0) {
        if (works_[event.launch] < 2 || !kind(host(event.launch).name).kernel ||
            ++seen[event.launch] == 1) {
          continue;
        }
        ++shared;
      } else {
        if (is_id(event.correlation)) continue;  // its call is not in the file
        without_id += event.correlation == 0;
      }
      homeless[static_cast<std::size_t>(event.kind)].push_back(static_cast<std::int32_t>(i));
    }
    if (shared + without_id == 0) return;
    std::array<std::vector<std::int32_t>, kWorkKinds> idle;
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      const HostEvent& event = trace_.host[i];
      if (event.kind != HostKind::kCall || works_[i] > 0) continue;
      const CallKind& known = kind(event.name);
      if (!known.launch || known.graph) continue;
      const GpuKind gives = known.kernel ? GpuKind::kKernel
                            : known.copy ? GpuKind::kCopy
                                         : GpuKind::kSet;
      idle[static_cast<std::size_t>(gives)].push_back(static_cast<std::int32_t>(i));
    }
    std::size_t housed = 0;
    for (std::size_t k = 0; k < kWorkKinds; ++k) housed += house(homeless[k], idle[k]);
    const std::size_t left = shared + without_id - std::min(housed, shared + without_id);
    const std::string rest =
        left == 0 ? std::string()
                  : fmt::format("; {} of them found none and stay as recorded", left);
    trace_.recording.say(
        "correlation_missing", without_id,
        fmt::format("{} kernels, copies or sets have correlation 0, which is no id: they count as "
                    "the work of launches that have none{}",
                    without_id, rest));
    trace_.recording.say(
        "correlation_shared", shared,
        fmt::format("{} kernels share the correlation of another one: they count as "
                    "the work of launches that have none{}",
                    shared, rest));
  }

  // In the order of time: one by one if there are as many launches as pieces of work, else the last
  // launch before the work. Work that shares an id belongs to the thread of that id.
  std::size_t house(std::vector<std::int32_t>& work, std::vector<std::int32_t>& calls) {
    if (work.empty() || calls.empty()) return 0;
    const auto by_start = [&](auto& events, const auto& of) {
      std::ranges::stable_sort(events, {}, [&](std::int32_t i) { return of(i).start_ns; });
    };
    by_start(work, [&](std::int32_t i) -> GpuEvent& { return gpu(i); });
    by_start(calls, [&](std::int32_t i) -> HostEvent& { return host(i); });
    const auto fits = [&](std::int32_t task, std::int32_t call) {
      const GpuEvent& event = gpu(task);
      return host(call).start_ns <= event.start_ns &&
             (event.launch < 0 || host(event.launch).thread == host(call).thread);
    };
    bool one_by_one = work.size() == calls.size();
    for (std::size_t i = 0; one_by_one && i < work.size(); ++i)
      one_by_one = fits(work[i], calls[i]);
    std::size_t housed = 0;
    const auto move_in = [&](std::int32_t task, std::int32_t call) {
      GpuEvent& event = gpu(task);
      if (event.launch >= 0) --works_[event.launch];
      event.launch = call;
      ++works_[call];
      ++housed;
    };
    std::size_t next = 0;
    std::map<std::int32_t, std::vector<std::int32_t>> waiting;  // by thread: calls before the work
    for (std::size_t i = 0; i < work.size(); ++i) {
      if (one_by_one) {
        move_in(work[i], calls[i]);
        continue;
      }
      for (; next < calls.size() && host(calls[next]).start_ns <= gpu(work[i]).start_ns; ++next) {
        waiting[host(calls[next]).thread].push_back(calls[next]);
      }
      std::vector<std::int32_t>* latest = nullptr;
      const std::int32_t launch = gpu(work[i]).launch;
      for (auto& [thread, of_thread] : waiting) {
        if (of_thread.empty() || (launch >= 0 && host(launch).thread != thread)) continue;
        if (!latest || host(latest->back()).start_ns < host(of_thread.back()).start_ns) {
          latest = &of_thread;
        }
      }
      if (!latest) continue;
      move_in(work[i], latest->back());
      latest->pop_back();
    }
    return housed;
  }

  void mark_launches() {
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      HostEvent& event = trace_.host[i];
      if (event.kind != HostKind::kCall) continue;
      event.launches = works_[i] > 0 || kind(event.name).launch;
    }
  }

  // If stamps are whole microseconds, a call without length at another one's start may come before
  // it.
  static bool is_inside(const HostEvent& call, const HostEvent& outer) {
    return call.thread == outer.thread && call.start_ns < outer.end_ns() &&
           call.end_ns() <= outer.end_ns() + kSameStampNs &&
           (call.start_ns > outer.start_ns || call.duration_ns > 0);
  }

  // A launch or wait within a call that launches or waits is that call's: a driver's call inside of
  // the runtime's.
  void join_nested() {
    std::vector<std::int32_t> into;  // per call that is part of another; empty: none is
    std::int32_t outer = -1;
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      HostEvent& event = trace_.host[i];
      if (event.kind != HostKind::kCall) continue;
      const bool matters = event.launches || kind(event.name).sync != SyncKind::kNone;
      if (outer < 0 || !is_inside(event, host(outer))) {
        outer = static_cast<std::int32_t>(i);
        continue;
      }
      if (!matters) continue;
      if (!event.launches && kind(host(outer).name).sync == SyncKind::kNone) continue;
      // Each has work of its own: rounded stamps.
      if (works_[i] > 0 && works_[outer] > 0 && event.correlation != host(outer).correlation) {
        continue;
      }
      if (into.empty()) into.assign(trace_.host.size(), -1);
      into[i] = outer;
      if (event.launches) host(outer).launches = true;
    }
    if (into.empty()) return;
    std::vector<std::int32_t> moved(trace_.host.size(), -1);
    std::size_t kept = 0, joined = 0;
    for (std::size_t i = 0; i < trace_.host.size(); ++i) {
      if (into[i] >= 0) {
        moved[i] = moved[into[i]];
        ++joined;
        continue;
      }
      moved[i] = static_cast<std::int32_t>(kept);
      if (kept != i) trace_.host[kept] = trace_.host[i];
      ++kept;
    }
    trace_.host.resize(kept);
    for (GpuEvent& event : trace_.gpu) {
      if (event.launch >= 0) event.launch = moved[event.launch];
    }
    trace_.recording.say("calls_within_calls", joined,
                         fmt::format("{} launches or waits lie within other calls, as a driver's "
                                     "call in one of the runtime: the outer call counts",
                                     joined));
  }

  Trace& trace_;
  std::vector<CallKind> kinds_;
  std::vector<std::int32_t>
      next_;  // per call: another one of its correlation; empty: ids are unique
  std::vector<std::uint32_t> works_;  // per host event: pieces of device work
  bool zero_is_id_ = false;
};

}  // namespace

void link_launches(Trace& trace) { Linker(trace).run(); }

}  // namespace perfmodel
