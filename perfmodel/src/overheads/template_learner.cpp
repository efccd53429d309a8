#include "template_learner.hpp"

#include <algorithm>
#include <utility>

namespace perfmodel {
namespace {

CopyKind copy_kind(std::string_view name) {
  if (name.find("HtoD") != std::string_view::npos ||
      name.find("HostToDevice") != std::string_view::npos) {
    return CopyKind::kHostToDevice;
  }
  if (name.find("DtoH") != std::string_view::npos ||
      name.find("DeviceToHost") != std::string_view::npos) {
    return CopyKind::kDeviceToHost;
  }
  if (name.find("PtoP") != std::string_view::npos) return CopyKind::kPeer;
  return CopyKind::kDeviceToDevice;
}

// Only the calls: kernel names depend on shapes and library version, and must not split the vote.
std::uint64_t structure_of(const LaunchTemplate& calls) {
  std::uint64_t hash = calls.size();
  for (const TemplateCall& call : calls) {
    hash = hash_mix(hash, hash_text(call.call));
    hash = hash_mix(hash, call.after_children);
    hash = hash_mix(hash, static_cast<std::uint64_t>(call.kind));
    hash = hash_mix(hash, static_cast<std::uint64_t>(call.stream) + 1);
    hash = hash_mix(hash, call.blocking);
  }
  return hash;
}

// Children of a node that start before a call.
template <class StartOf>
std::uint16_t children_before(std::int64_t call_start, std::span<const std::int32_t> children,
                              StartOf&& start_of) {
  std::size_t count = 0;
  while (count < children.size() && start_of(children[count]) < call_start) ++count;
  return static_cast<std::uint16_t>(std::min<std::size_t>(count, 0xffff));
}

}  // namespace

StreamRoles stream_roles(const Trace& trace) {
  struct Count {
    std::size_t compute = 0, collective = 0, all = 0;
  };
  std::map<std::int64_t, Count> counts;
  for (const GpuEvent& task : trace.gpu) {
    Count& count = counts[task.stream];
    ++count.all;
    if (task.kind != GpuKind::kKernel) continue;
    ++(is_collective_kernel(trace.name(task)) ? count.collective : count.compute);
  }
  std::vector<std::pair<std::int64_t, Count>> order(counts.begin(), counts.end());
  if (order.empty()) return {};
  const auto main = std::max_element(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second.compute < b.second.compute;
  });
  std::iter_swap(order.begin(), main);
  std::stable_sort(order.begin() + 1, order.end(), [](const auto& a, const auto& b) {
    const bool a_comm = a.second.collective > 0, b_comm = b.second.collective > 0;
    if (a_comm != b_comm) return a_comm;
    return a.second.all > b.second.all;
  });
  StreamRoles roles;
  for (std::size_t i = 0; i < order.size(); ++i)
    roles[order[i].first] = static_cast<std::int16_t>(i);
  return roles;
}

TemplateCall describe_call(const Trace& trace, std::int32_t event,
                           const std::vector<CallWait>& waits, const CallWork& work,
                           const StreamRoles& streams) {
  const auto index = static_cast<std::size_t>(event);
  TemplateCall call;
  call.call = trace.name(trace.host[index]);
  if (const SyncKind sync = sync_kind(call.call); sync != SyncKind::kNone) {
    call.kind = TemplateCall::Kind::kSync;
    call.sync = sync;
    if (waits[index].task >= 0 && sync == SyncKind::kStream) {
      call.stream = streams.at(trace.gpu[waits[index].task].stream);
    }
    return call;
  }
  call.tasks = static_cast<std::uint16_t>(std::min<std::uint32_t>(work.count(index), 0xffff));
  call.blocking = waits[index].kind == CallWait::Kind::kBlockingCopy;
  if (is_graph_launch_call(call.call)) call.kind = TemplateCall::Kind::kGraphLaunch;
  if (call.tasks == 0 && call.call.find("Memset") != std::string::npos) {
    // Libraries set zero bytes now and then: the call returns at once and gives the device nothing.
    call.kind = TemplateCall::Kind::kSet;
    call.tasks = trace.gpu.empty() ? 1 : 0;
    return call;
  }
  if (call.tasks == 0) {  // launched, but its work is not in the trace
    if (is_copy_call(call.call)) call.kind = TemplateCall::Kind::kCopy;
    call.tasks = 1;
    return call;
  }
  const GpuEvent& task = trace.gpu[work.work[work.first[index]]];
  call.stream = streams.at(task.stream);
  call.kernel = trace.name(task).substr(0, kKeptKernelName);
  if (call.kind == TemplateCall::Kind::kGraphLaunch) return call;
  if (task.kind == GpuKind::kCopy) {
    call.kind = TemplateCall::Kind::kCopy;
    call.copy = copy_kind(call.kernel);
    call.pageable = call.kernel.find("Pageable") != std::string::npos;
  } else if (task.kind == GpuKind::kSet) {
    call.kind = TemplateCall::Kind::kSet;
  } else {
    call.collective = is_collective_kernel(call.kernel);
  }
  return call;
}

std::uint32_t TemplateLearner::list_index(const RecordedCalls& recorded) {
  const LaunchTemplate& calls = recorded.calls;
  std::uint64_t hash = structure_of(calls);
  for (const TemplateCall& call : calls) hash = hash_mix(hash, hash_text(call.kernel));
  auto& candidates = by_hash_[hash];
  for (std::uint32_t candidate : candidates) {
    RecordedCalls& known = lists_[candidate];
    if (known.calls != calls) continue;
    for (std::size_t i = 0; i < calls.size(); ++i) known.work_ns[i] += recorded.work_ns[i];
    return candidate;
  }
  candidates.push_back(static_cast<std::uint32_t>(lists_.size()));
  lists_.push_back(recorded);
  return candidates.back();
}

void TemplateLearner::count(std::size_t level, std::uint64_t key, std::uint32_t list) {
  LaunchTemplates::Entry& first = first_.by_key[level][key];
  if (first.count == 0) first.list = list;
  ++(first.list == list ? first.count : others_[level][key][list]);
}

void TemplateLearner::observe(const TemplateKeys& keys, const RecordedCalls& recorded) {
  const std::uint32_t list = list_index(recorded);
  for (std::size_t level = 0; level < kTemplateLevels; ++level) count(level, keys[level], list);
}

void TemplateLearner::observe_names(const TemplateKeys& keys, const RecordedCalls& recorded) {
  const std::uint32_t list = list_index(recorded);
  for (const TemplateLevel level : {TemplateLevel::kChildren, TemplateLevel::kName})
    count(static_cast<std::size_t>(level), keys[static_cast<std::size_t>(level)], list);
}

namespace {

// Among several kernels, the one that does the op's work takes the longest.
void mark_longest(LaunchTemplate& calls, const std::vector<std::int64_t>& work_ns) {
  const auto kernels = std::ranges::count(calls, TemplateCall::Kind::kKernel, &TemplateCall::kind);
  const auto longest = std::ranges::max_element(work_ns);
  if (kernels < 2 || *longest == 0) return;
  calls[longest - work_ns.begin()].longest = true;
}

}  // namespace

LaunchTemplates TemplateLearner::finish() {
  LaunchTemplates templates = std::move(first_);
  std::vector<std::uint64_t> structures;
  for (const RecordedCalls& list : lists_) {
    templates.lists.push_back(list.calls);
    mark_longest(templates.lists.back(), list.work_ns);
    structures.push_back(structure_of(list.calls));
  }
  for (std::size_t level = 0; level < kTemplateLevels; ++level) {
    for (auto& [key, seen] : others_[level]) {
      LaunchTemplates::Entry& best = templates.by_key[level][key];
      seen[best.list] = std::exchange(best.count, 0);
      // First the most common structure, then its most common kernel names.
      std::map<std::uint64_t, std::uint32_t> votes;
      for (const auto& [list, count] : seen) votes[structures[list]] += count;
      const auto winner = std::ranges::max_element(votes, {}, [](auto& at) { return at.second; });
      for (const auto& [list, count] : seen) {
        if (structures[list] == winner->first && count > best.count) {
          best = {.list = list, .count = count};
        }
      }
    }
  }
  return templates;
}

namespace {

std::int64_t work_ns_of(const Trace& trace, const CallWork& work, std::int32_t call) {
  std::int64_t sum = 0;
  for (std::uint32_t i = work.first[call]; i < work.first[call + 1]; ++i) {
    sum += trace.gpu[work.work[i]].duration_ns;
  }
  return sum;
}

}  // namespace

void learn_templates(const Trace& trace, const ExecutionGraph& graph, const GraphLink& link,
                     const std::vector<HostChain>& chains, const std::vector<CallWait>& waits,
                     const CallWork& work, const StreamRoles& streams, TemplateLearner& learner) {
  std::vector<TemplateKeys> keys(graph.nodes.size());
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = template_keys(graph, graph.nodes[i]);
  learner.reserve(keys.size());
  for (const GraphOccurrence& occurrence : link.occurrences) {
    std::vector<RecordedCalls> own(graph.nodes.size());
    std::vector<bool> covered(graph.nodes.size(), false);
    const auto start_of = [&](std::int32_t node) {
      const std::int32_t event = occurrence.event_of_node[node];
      return event < 0 ? std::int64_t{0} : trace.host[event].start_ns;
    };
    bool used = false;
    for (const HostChain& chain : chains) {
      if (chain.begin_ns < occurrence.begin_ns || chain.end_ns > occurrence.end_ns) continue;
      used = true;
      const auto add = [&](const ChainCall& made) {
        if (made.node < 0) return;
        TemplateCall call = describe_call(trace, made.event, waits, work, streams);
        call.after_children = children_before(trace.host[made.event].start_ns,
                                              graph.children(graph.nodes[made.node]), start_of);
        own[made.node].add(std::move(call), work_ns_of(trace, work, made.event));
      };
      for (const ChainOp& op : chain.ops) {
        for (const ChainCall& call : op.calls) add(call);
      }
      for (const ChainCall& call : chain.loose_calls) add(call);
      std::fill(covered.begin() + chain.node_begin, covered.begin() + chain.node_end, true);
    }
    if (!used) continue;
    for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
      if ((occurrence.event_of_node[i] >= 0 && covered[i]) || !own[i].calls.empty()) {
        learner.observe(keys[i], own[i]);
      }
    }
  }
}

void learn_templates(const Trace& trace, const TraceOps& nesting,
                     const std::vector<HostChain>& chains, const std::vector<CallWait>& waits,
                     const CallWork& work, const StreamRoles& streams, TemplateLearner& learner) {
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> children;
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    if (trace.host[i].kind != HostKind::kCall && nesting.parent[i] >= 0) {
      children[nesting.parent[i]].push_back(static_cast<std::int32_t>(i));
    }
  }
  const auto start_of = [&](std::int32_t event) { return trace.host[event].start_ns; };
  for (const HostChain& chain : chains) {
    std::unordered_map<std::int32_t, RecordedCalls> own;
    for (const ChainOp& op : chain.ops) {
      own[op.event];
      for (std::size_t i = static_cast<std::size_t>(op.event) + 1;
           i < trace.host.size() && trace.host[i].thread == trace.host[op.event].thread &&
           trace.host[i].start_ns < trace.host[op.event].end_ns();
           ++i) {
        if (trace.host[i].kind != HostKind::kCall) own[static_cast<std::int32_t>(i)];
      }
      for (const ChainCall& made : op.calls) {
        TemplateCall call = describe_call(trace, made.event, waits, work, streams);
        call.after_children = children_before(start_of(made.event), children[made.node], start_of);
        own[made.node].add(std::move(call), work_ns_of(trace, work, made.event));
      }
    }
    for (const auto& [event, calls] : own) {
      const std::uint64_t name = trace.names.hash(trace.host[event].name);
      std::uint64_t with_children = hash_mix(name, 1);
      for (std::int32_t child : children[event]) {
        with_children = hash_mix(with_children, trace.names.hash(trace.host[child].name));
      }
      learner.observe_names({0, 0, 0, with_children, name}, calls);
    }
  }
}

}  // namespace perfmodel
