#include "perfmodel/detail/kernel_times.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>

#include "core/call_waits.hpp"
#include "overheads/host_chain.hpp"
#include "perfmodel/graph/detail/event_names.hpp"
#include "record/device_starts.hpp"

namespace perfmodel {
namespace {

std::uint64_t key_of(std::int32_t node, std::uint32_t ordinal) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(node)) << 32 | ordinal;
}

// Calls of a step whose work waited for other streams, and for which. A trace names no events, so
// that its starts tell; waits that a call had in most steps are kept.
class StreamWaits {
 public:
  StreamWaits(const Trace& trace, const CallWork& work) : trace_(trace) {
    const bool waits = std::ranges::any_of(trace.host, [&](const HostEvent& event) {
      return event.kind == HostKind::kCall && trace.name(event).ends_with("StreamWaitEvent");
    });
    if (waits) starts_.emplace(trace, find_call_waits(trace), work);
  }

  bool any() const { return starts_.has_value(); }

  /// `call_of`: calls by their work, of one step.
  void add_step(const std::unordered_map<std::int32_t, KernelTimes::Call>& call_of) {
    for (const auto& [task, call] : call_of) {
      const Reason reason = last_reason(task);
      if (reason.queued && reason.awaited < 0) gaps_[call].add(reason.delay_us);
      for (const DeviceStarts::Wait& wait : starts_->waits(task)) {
        const auto awaited = call_of.find(wait.task);
        if (awaited == call_of.end()) continue;
        Sum& sum = waits_[{call, awaited->second}];
        ++sum.count;
        if (wait.held) sum.lag.add(wait.lag_us.value_or(0));
        if (reason.queued && reason.awaited == wait.task) sum.lag.add(reason.delay_us);
      }
    }
  }

  void give(KernelTimes& times) const {
    // Rounded stamps overlap, kernels of a stream do not.
    for (const auto& [call, gap] : gaps_) times.set_gap(call, std::max(0.0, gap.mean()));
    for (const auto& [calls, sum] : waits_) {
      const auto& [call, awaited] = calls;
      const KernelTimes::Time* time = times.find(call.node, call.ordinal);
      if (!time || 2 * sum.count <= time->count) continue;
      KernelTimes::Wait wait{.call = awaited, .lag_us = {}};
      if (sum.lag.count > 0) wait.lag_us = sum.lag.mean();
      times.add_wait(call, wait);
    }
  }

 private:
  std::optional<DeviceStarts> starts_;
  struct Mean {
    double sum = 0;
    std::uint32_t count = 0;
    void add(double us) {
      sum += us;
      ++count;
    }
    double mean() const { return sum / count; }
  };
  struct Sum {
    std::uint32_t count = 0;
    Mean lag;
  };

  // The work that ended last before a piece of work began: the work before it on its stream, or
  // awaited work of another one. `queued`: it had been launched by then, so that only the device
  // held it.
  struct Reason {
    std::int32_t awaited = -1;
    double delay_us = 0;
    bool queued = false;
  };

  Reason last_reason(std::int32_t task) const {
    const auto event = [&](std::int32_t at) -> const GpuEvent& { return trace_.gpu[at]; };
    const GpuEvent& at = event(task);
    const std::int32_t before = starts_->previous(task);
    Reason reason;
    std::int64_t end =
        before < 0 ? std::numeric_limits<std::int64_t>::min() : event(before).end_ns();
    for (const DeviceStarts::Wait& wait : starts_->waits(task)) {
      if (wait.held || event(wait.task).end_ns() <= end) continue;
      end = event(wait.task).end_ns();
      reason.awaited = wait.task;
    }
    if (at.launch < 0 || end == std::numeric_limits<std::int64_t>::min()) return reason;
    const std::int64_t launched = trace_.host[at.launch].end_ns();
    constexpr std::int64_t kLongestNs = 1'000'000;
    reason.queued = launched + kQueuedNs < end && at.start_ns - end < kLongestNs;
    reason.delay_us = static_cast<double>(at.start_ns - end) / 1e3;
    return reason;
  }

  static constexpr std::int64_t kQueuedNs = 5'000;
  const Trace& trace_;
  std::map<std::pair<KernelTimes::Call, KernelTimes::Call>, Sum> waits_;  // waiting, awaited
  std::map<KernelTimes::Call, Mean> gaps_;
};

}  // namespace

const KernelTimes::Time* KernelTimes::find(std::int32_t node, std::uint32_t ordinal) const {
  return times_.find(key_of(node, ordinal));
}

void KernelTimes::add(std::int32_t node, std::uint32_t ordinal, double us, bool collective,
                      double input_bytes) {
  Time& time = times_[key_of(node, ordinal)];
  ++time.count;
  time.us += (us - time.us) / time.count;
  time.collective = collective;
  time.input_bytes = input_bytes;
}

void KernelTimes::add_wait(const Call& call, const Wait& wait) {
  Time* time = times_.find(key_of(call.node, call.ordinal));
  if (!time) return;
  time->waits.push_back(wait);
  has_waits_ = true;
}

void KernelTimes::set_gap(const Call& call, double us) {
  if (Time* time = times_.find(key_of(call.node, call.ordinal))) time->gap_us = us;
}

KernelTimes collective_times(const KernelTimes& times, const ExecutionGraph& from,
                             const ExecutionGraph& to) {
  std::set<std::string_view> names;
  const auto is_collective = [&](std::size_t node) {
    const KernelTimes::Time* time = times.find(static_cast<std::int32_t>(node), 0);
    return time && time->collective;
  };
  for (std::size_t i = 0; i < from.nodes.size(); ++i) {
    if (is_collective(i)) names.insert(from.name(from.nodes[i]));
  }
  const auto named = [&](const ExecutionGraph& graph) {
    std::vector<std::size_t> nodes;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      if (names.contains(graph.name(graph.nodes[i]))) nodes.push_back(i);
    }
    return nodes;
  };
  const std::vector<std::size_t> before = named(from), after = named(to);
  const bool same_names = std::ranges::equal(
      before, after, {}, [&](std::size_t i) { return from.name(from.nodes[i]); },
      [&](std::size_t i) { return to.name(to.nodes[i]); });
  KernelTimes made;
  if (!same_names) return made;
  made.source = times.source;
  made.other_gpu = times.other_gpu;
  made.alone_on = times.alone_on;
  for (std::size_t i = 0; i < before.size(); ++i) {
    for (std::uint32_t ordinal = 0;; ++ordinal) {
      const auto* time = times.find(static_cast<std::int32_t>(before[i]), ordinal);
      if (!time) break;
      if (!time->collective) continue;
      made.add(static_cast<std::int32_t>(after[i]), ordinal, time->us, true, time->input_bytes);
    }
  }
  return made;
}

bool is_of_larger_job(const ExecutionGraph& graph, const Trace& trace) {
  return trace.world_size > 1 ||
         std::ranges::any_of(graph.comm_records,
                             [](const CommRecord& record) { return record.group_size > 1; });
}

double input_bytes(const ExecutionGraph& graph, std::int32_t node) {
  double bytes = 0;
  for_each_tensor(graph, graph.inputs(node),
                  [&](const Tensor& tensor) { bytes += static_cast<double>(tensor.bytes()); });
  return bytes;
}

Result<KernelTimes> kernel_times(const ExecutionGraph& graph, const Trace& trace,
                                 const std::optional<std::pair<std::size_t, std::size_t>>& window) {
  PERFMODEL_TRY(chains, host_chains({.trace = &trace, .graph = &graph}, window, nullptr));
  const CallWork work = work_of_calls(trace);
  StreamWaits waits(trace, work);
  KernelTimes times;
  times.source = std::filesystem::path(trace.source).filename().string();
  for (const HostChain& chain : *chains) {
    std::unordered_map<std::int32_t, std::uint32_t> next;         // per node, of this chain
    std::unordered_map<std::int32_t, KernelTimes::Call> call_of;  // by device work, the same
    const auto add = [&](const ChainCall& call) {
      if (call.node < 0 || !trace.host[call.event].launches) return;
      const std::uint32_t ordinal = next[call.node]++;
      const auto event = static_cast<std::size_t>(call.event);
      double us = 0;  // a graph launch counts as one task of the summed time
      bool collective = false;
      for (std::uint32_t i = work.first[event]; i < work.first[event + 1]; ++i) {
        const GpuEvent& task = trace.gpu[work.work[i]];
        us += static_cast<double>(task.duration_ns) / 1e3;
        if (waits.any()) call_of[work.work[i]] = {call.node, ordinal};
        collective |= task.kind == GpuKind::kKernel && is_collective_kernel(trace.name(task));
      }
      times.add(call.node, ordinal, us, collective, input_bytes(graph, call.node));
    };
    for (const ChainOp& op : chain.ops) {
      for (const ChainCall& call : op.calls) add(call);
    }
    for (const ChainCall& call : chain.loose_calls) add(call);
    if (waits.any()) waits.add_step(call_of);
  }
  waits.give(times);
  return times;
}

}  // namespace perfmodel
