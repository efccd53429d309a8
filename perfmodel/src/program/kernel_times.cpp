#include "perfmodel/detail/kernel_times.hpp"

#include <filesystem>

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
      const std::string_view name = trace.name(trace.host[static_cast<std::size_t>(call.event)]);
      if (call.node < 0 || !is_launch_call(name)) return;
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
