#include "perfmodel/detail/kernel_times.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <vector>

#include "overheads/host_chain.hpp"

namespace perfmodel {
namespace {

std::uint64_t key_of(std::int32_t node, std::uint32_t ordinal) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(node)) << 32 | ordinal;
}

}  // namespace

const KernelTimes::Time* KernelTimes::find(std::int32_t node, std::uint32_t ordinal) const {
  const auto at = times_.find(key_of(node, ordinal));
  return at == times_.end() ? nullptr : &at->second;
}

void KernelTimes::add(std::int32_t node, std::uint32_t ordinal, double us, bool collective,
                      double input_bytes) {
  Time& time = times_[key_of(node, ordinal)];
  ++time.count;
  time.us += (us - time.us) / time.count;
  time.collective = collective;
  time.input_bytes = input_bytes;
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
  for_each_tensor(graph, graph.inputs(graph.nodes[static_cast<std::size_t>(node)]),
                  [&](const Tensor& tensor) { bytes += static_cast<double>(tensor.bytes()); });
  return bytes;
}

Result<KernelTimes> kernel_times(const ExecutionGraph& graph, const Trace& trace,
                                 const std::optional<std::pair<std::size_t, std::size_t>>& window) {
  const auto chains = host_chains({.trace = &trace, .graph = &graph}, window, nullptr);
  if (!chains) return Unexpected{chains.error()};
  const CallWork work = work_of_calls(trace);
  KernelTimes times;
  times.source = std::filesystem::path(trace.source).filename().string();
  for (const HostChain& chain : *chains) {
    std::unordered_map<std::int32_t, std::uint32_t> next;  // per node, of this chain
    const auto add = [&](const ChainCall& call) {
      if (call.node < 0 || !trace.host[static_cast<std::size_t>(call.event)].launches) return;
      const std::uint32_t ordinal = next[call.node]++;
      const auto event = static_cast<std::size_t>(call.event);
      double us = 0;  // a graph launch counts as one task of the summed time
      bool collective = false;
      for (std::uint32_t i = work.first[event]; i < work.first[event + 1]; ++i) {
        const GpuEvent& task = trace.gpu[static_cast<std::size_t>(work.work[i])];
        us += static_cast<double>(task.duration_ns) / 1e3;
        collective |= task.kind == GpuKind::kKernel && is_collective_kernel(trace.name(task));
      }
      times.add(call.node, ordinal, us, collective, input_bytes(graph, call.node));
    };
    for (const ChainOp& op : chain.ops) {
      for (const ChainCall& call : op.calls) add(call);
    }
    for (const ChainCall& call : chain.loose_calls) add(call);
  }
  return times;
}

}  // namespace perfmodel
