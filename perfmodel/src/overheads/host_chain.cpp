#include "host_chain.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "perfmodel/graph/detail/event_names.hpp"

namespace perfmodel {
namespace {

// Calls of one thread in start order.
std::vector<std::vector<std::int32_t>> calls_by_thread(const Trace& trace) {
  std::vector<std::vector<std::int32_t>> calls(trace.threads.size());
  std::vector<std::int8_t> known(trace.names.size(), -1);
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (event.kind != HostKind::kCall) continue;
    auto& waits = known[event.name];
    if (waits < 0) waits = sync_kind(trace.name(event)) != SyncKind::kNone ? 1 : 0;
    if (event.launches || waits == 1) calls[event.thread].push_back(static_cast<std::int32_t>(i));
  }
  return calls;
}

// The times of a step, within which launches before its first op and after its last one are its
// own.
struct StepReach {
  std::int64_t begin_ns = 0, end_ns = 0;
  bool holds(std::int64_t stamp_ns) const { return begin_ns <= stamp_ns && stamp_ns < end_ns; }
};

// A launch outside of every op and label belongs to the step's mark, else to its thread.
std::int32_t holder_of_loose_calls(const ExecutionGraph& graph, const HostChain& chain,
                                   std::int32_t thread_node) {
  const Node& first = graph.node(chain.node_begin);
  return first.is_label && is_profiler_step(graph.name(first)) ? chain.node_begin : thread_node;
}

// The linked nodes of one occurrence on one thread, in id = start order.
struct ThreadNodes {
  std::vector<std::int32_t> nodes;
  std::vector<std::int64_t> latest_start_ns;  // among a node and those before it
  std::vector<std::int32_t> longer;  // position of the last node before that ends later, -1: none
  std::int32_t structural = -1;      // the structural node above them, -1: they have none
};

std::vector<ThreadNodes> nodes_by_thread(const Trace& trace, const ExecutionGraph& graph,
                                         const GraphOccurrence& occurrence) {
  const auto host_of = [&](std::int32_t node) -> const HostEvent& {
    return trace.host[occurrence.event_of_node[node]];
  };
  std::vector<ThreadNodes> threads(trace.threads.size());
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (occurrence.event_of_node[n] < 0) continue;
    const auto node = static_cast<std::int32_t>(n);
    const HostEvent& host = host_of(node);
    ThreadNodes& on = threads[host.thread];
    auto longer = static_cast<std::int32_t>(on.nodes.size()) - 1;
    while (longer >= 0 && host_of(on.nodes[longer]).end_ns() <= host.end_ns()) {
      longer = on.longer[longer];
    }
    on.longer.push_back(longer);
    on.latest_start_ns.push_back(
        on.nodes.empty() ? host.start_ns : std::max(on.latest_start_ns.back(), host.start_ns));
    on.nodes.push_back(node);
  }
  for (ThreadNodes& on : threads) {
    if (on.nodes.empty()) continue;
    on.structural = graph.find_around(on.nodes.front(),
                                      [&](std::int32_t i) { return graph.node(i).is_structural; });
  }
  return threads;
}

// The nodes of a thread that are open when a call begins, for calls in start order.
class OpenNodes {
 public:
  OpenNodes(const Trace& trace, const GraphOccurrence& occurrence, const ThreadNodes& on)
      : trace_(trace), occurrence_(occurrence), on_(on) {}

  // The innermost node around the call, -1: none. Closed = ended before the call does; a
  // zero-length neighbour at the same stamp cannot hold it.
  std::int32_t around(const HostEvent& call) {
    if (!begun_) skip_earlier(call.start_ns);
    for (; next_ < on_.nodes.size() && on_.latest_start_ns[next_] <= call.start_ns; ++next_) {
      open_.push_back(on_.nodes[next_]);
    }
    while (!open_.empty() && end_ns(open_.back()) < call.end_ns()) open_.pop_back();
    if (!open_.empty()) return open_.back();
    while (earlier_ >= 0 && end_ns(on_.nodes[earlier_]) < call.end_ns()) {
      earlier_ = on_.longer[earlier_];
    }
    return earlier_ < 0 ? -1 : on_.nodes[earlier_];
  }

 private:
  // Nodes that began before the first call: those that a longer one follows need no look.
  void skip_earlier(std::int64_t start_ns) {
    const auto& starts = on_.latest_start_ns;
    next_ = std::ranges::upper_bound(starts, start_ns) - starts.begin();
    earlier_ = static_cast<std::int32_t>(next_) - 1;
    begun_ = true;
  }
  std::int64_t end_ns(std::int32_t node) const {
    return trace_.host[occurrence_.event_of_node[node]].end_ns();
  }

  const Trace& trace_;
  const GraphOccurrence& occurrence_;
  const ThreadNodes& on_;
  bool begun_ = false;
  std::size_t next_ = 0;
  std::int32_t earlier_ = -1;       // the last open node that began before the first call
  std::vector<std::int32_t> open_;  // later ones
};

// Innermost linked node of one occurrence around each call: a sweep per thread over nodes and calls
// in start order, from the step's first call on.
void attach_calls(const Trace& trace, const ExecutionGraph& graph,
                  const GraphOccurrence& occurrence, const std::vector<ThreadNodes>& nodes,
                  const std::vector<std::vector<std::int32_t>>& calls, const StepReach& reach,
                  HostChain& chain) {
  std::vector<std::int32_t> place(chain.node_end - chain.node_begin, -1);  // ops by their nodes
  for (std::size_t i = 0; i < chain.ops.size(); ++i) {
    place[chain.ops[i].node - chain.node_begin] = static_cast<std::int32_t>(i);
  }
  const auto is_op = [&](std::int32_t node) {
    return node >= chain.node_begin && node < chain.node_end && place[node - chain.node_begin] >= 0;
  };
  const auto start_of = [&](std::int32_t call) { return trace.host[call].start_ns; };
  for (std::size_t thread = 0; thread < calls.size(); ++thread) {
    OpenNodes open(trace, occurrence, nodes[thread]);
    auto at = std::ranges::lower_bound(calls[thread], std::min(chain.begin_ns, reach.begin_ns), {},
                                       start_of);
    for (; at != calls[thread].end(); ++at) {
      const HostEvent& event = trace.host[*at];
      if (event.start_ns > std::max(chain.end_ns, reach.end_ns)) break;
      const bool around = event.start_ns < chain.begin_ns || event.start_ns > chain.end_ns;
      if (around && !(event.launches && reach.holds(event.start_ns))) continue;
      ChainCall made{.event = *at, .node = open.around(event)};
      if (made.node < 0 && event.launches) {
        made.node = holder_of_loose_calls(graph, chain, nodes[thread].structural);
      }
      const std::int32_t top = graph.find_around(made.node, is_op);
      if (top >= 0) {
        chain.ops[place[top - chain.node_begin]].calls.push_back(made);
      } else {
        chain.loose_calls.push_back(made);
      }
    }
  }
}

}  // namespace

std::int32_t label_around(const ExecutionGraph& graph, std::int32_t node) {
  return graph.find_around(graph.node(node).parent, [&](std::int32_t label) {
    return !is_checkpoint_name(graph.name(label));
  });
}

namespace {

std::uint64_t label_of(const ExecutionGraph& graph, std::int32_t node, std::int32_t& label) {
  label = label_around(graph, node);
  return label < 0 ? 0 : graph.names.hash(graph.node(label).name);
}

// Outermost label around an op, iteration marks aside, as a host event.
std::int32_t phase_of(const ExecutionGraph& graph, const GraphOccurrence& occurrence,
                      std::int32_t node) {
  std::int32_t phase = -1;
  for (std::int32_t at = node; at >= 0; at = graph.node(at).parent) {
    const Node& label = graph.node(at);
    const std::int32_t event = occurrence.event_of_node[at];
    if (!label.is_label || event < 0) continue;
    const std::string_view name = graph.name(label);
    if (!is_profiler_step(name) && !is_checkpoint_name(name)) phase = event;
  }
  return phase;
}

std::int32_t phase_of(const Trace& trace, const TraceOps& nesting, std::int32_t op) {
  std::int32_t phase = -1;
  for (std::int32_t at = op; at >= 0; at = nesting.parent[at]) {
    const HostEvent& event = trace.host[at];
    if (event.kind != HostKind::kAnnotation) continue;
    const std::string_view name = trace.name(event);
    if (!is_profiler_step(name) && !is_checkpoint_name(name)) phase = at;
  }
  return phase;
}

// The autograd thread has no labels of its own: its ops belong to the label that is open meanwhile.
void inherit_phases(HostChain& chain, const Trace& trace) {
  std::int32_t current = -1;
  for (ChainOp& op : chain.ops) {
    if (op.phase_event >= 0) {
      current = op.phase_event;
    } else if (current >= 0 && trace.host[op.event].start_ns < trace.host[current].end_ns()) {
      op.phase_event = current;
    }
  }
}

void set_border(HostChain& chain, const Trace& trace, const std::vector<TraceIteration>& steps) {
  const std::int32_t step = iteration_at(steps, chain.begin_ns);
  if (step < 0 || chain.ops.empty()) return;
  const auto& window = steps[step];
  const auto next = static_cast<std::size_t>(step) + 1;
  chain.ends_window = next < steps.size() && !follows_at_once(window, steps[next]);
  // From one end of an optimizer to the next, the border is within the next chain's gap.
  if (!is_profiler_step(window.name) && !chain.ends_window && next < steps.size()) return;
  const std::int64_t first = trace.host[chain.ops.front().event].start_ns;
  const std::int64_t last = trace.host[chain.ops.back().event].end_ns();
  if (window.begin_ns <= first && last <= window.end_ns) {
    chain.border_gap_ns = first - window.begin_ns + window.end_ns - last;
  }
}

std::vector<HostChain> chains_from_graph(const Trace& trace, const ExecutionGraph& graph,
                                         const GraphLink& link,
                                         const std::vector<TraceIteration>& steps) {
  const auto top = top_level_ops(graph);
  const auto calls = calls_by_thread(trace);
  const auto graph_steps = iterations(graph);
  std::vector<HostChain> chains;
  for (const GraphOccurrence& occurrence : link.occurrences) {
    const auto nodes = nodes_by_thread(trace, graph, occurrence);
    // A graph of several steps is several chains: each step has its own border.
    for (const GraphIteration& step : graph_steps) {
      HostChain chain;
      chain.node_begin = step.begin;
      chain.node_end = step.end;
      for (auto at = std::ranges::lower_bound(top, step.begin); at != top.end(); ++at) {
        const std::int32_t node = *at;
        if (node >= step.end) break;
        const std::int32_t event = occurrence.event_of_node[node];
        if (event < 0) continue;
        ChainOp op{.node = node, .event = event};
        op.name = graph.names.hash(graph.node(node).name);
        op.subtree = subtree_key(graph, node);
        op.walks_list = walks_list(graph.name(node));
        op.tensors = list_length(graph, graph.node(node));
        op.label = label_of(graph, node, op.label_item);
        op.phase_event = phase_of(graph, occurrence, node);
        const HostEvent& host = trace.host[event];
        chain.begin_ns =
            chain.ops.empty() ? host.start_ns : std::min(chain.begin_ns, host.start_ns);
        chain.end_ns = chain.ops.empty() ? host.end_ns() : std::max(chain.end_ns, host.end_ns());
        chain.ops.push_back(std::move(op));
      }
      if (chain.ops.empty()) continue;
      inherit_phases(chain, trace);
      const std::int32_t mark = iteration_at(steps, chain.begin_ns);
      StepReach reach{chain.begin_ns, chain.end_ns};
      if (mark >= 0) {
        const TraceIteration& window = steps[mark];
        reach = {window.begin_ns, window.end_ns};
      } else if (steps.empty() && link.occurrences.size() == 1) {
        reach = {0, std::numeric_limits<std::int64_t>::max()};
      }
      attach_calls(trace, graph, occurrence, nodes, calls, reach, chain);
      set_border(chain, trace, steps);
      chains.push_back(std::move(chain));
    }
  }
  return chains;
}

bool is_checkpoint(const Trace& trace, std::int32_t event) {
  return is_checkpoint_name(trace.name(trace.host[event]));
}

// Without a graph: top-level ops by time, label and subtree from the nesting of the trace.
std::vector<HostChain> chains_from_trace(const Trace& trace,
                                         const std::vector<TraceIteration>& steps) {
  const TraceOps found = find_trace_ops(trace);
  const auto calls = calls_by_thread(trace);
  std::vector<HostChain> chains(std::max<std::size_t>(steps.size(), 1));
  std::vector<std::int32_t> top = found.top_level;
  std::stable_sort(top.begin(), top.end(), [&](std::int32_t a, std::int32_t b) {
    return trace.host[a].start_ns < trace.host[b].start_ns;
  });
  // Names below each top-level op, in start order: the host events between it and the next one.
  std::unordered_map<std::int32_t, std::uint64_t> subtree;
  for (std::int32_t op : found.top_level) {
    const HostEvent& event = trace.host[op];
    std::uint64_t key = hash_mix(trace.names.hash(event.name), 11);
    for (std::size_t i = static_cast<std::size_t>(op) + 1; i < trace.host.size(); ++i) {
      const HostEvent& inner = trace.host[i];
      if (inner.thread != event.thread || inner.start_ns >= event.end_ns()) break;
      if (inner.kind != HostKind::kCall) key = hash_mix(key, trace.names.hash(inner.name));
    }
    subtree[op] = key;
  }
  std::unordered_map<std::int32_t, std::pair<std::size_t, std::size_t>>
      place;  // op -> chain, index
  for (std::int32_t op : top) {
    const HostEvent& event = trace.host[op];
    std::int32_t step = steps.empty() ? 0 : iteration_at(steps, event.start_ns);
    if (step < 0) continue;
    HostChain& chain = chains[step];
    ChainOp made{.event = op};
    made.name = trace.names.hash(event.name);
    made.subtree = subtree[op];
    made.walks_list = walks_list(trace.name(event));
    made.label_item = found.parent[op];
    while (made.label_item >= 0 && is_checkpoint(trace, made.label_item)) {
      made.label_item = found.parent[made.label_item];
    }
    if (made.label_item >= 0) {
      made.label = trace.names.hash(trace.host[made.label_item].name);
    }
    made.phase_event = phase_of(trace, found, op);
    chain.begin_ns = chain.ops.empty() ? event.start_ns : std::min(chain.begin_ns, event.start_ns);
    chain.end_ns = std::max(chain.end_ns, event.end_ns());
    place[op] = {static_cast<std::size_t>(step), chain.ops.size()};
    chain.ops.push_back(std::move(made));
  }
  for (const auto& thread : calls) {
    for (std::int32_t call : thread) {
      std::int32_t at = found.parent[call];
      std::int32_t owner = -1;
      for (; at >= 0; at = found.parent[at]) {
        if (place.contains(at)) owner = at;
      }
      if (owner >= 0) {
        const auto [chain, index] = place[owner];
        chains[chain].ops[index].calls.push_back({.event = call, .node = found.parent[call]});
      } else {
        const std::int64_t start = trace.host[call].start_ns;
        const std::int32_t step = steps.empty() ? 0 : iteration_at(steps, start);
        if (step >= 0) chains[step].loose_calls.push_back({.event = call});
      }
    }
  }
  for (HostChain& chain : chains) {
    inherit_phases(chain, trace);
    set_border(chain, trace, steps);
  }
  std::erase_if(chains, [](const HostChain& chain) { return chain.ops.empty(); });
  return chains;
}

}  // namespace

bool makes_optimizer_state(const HostChain& chain, const OverheadSource& source) {
  constexpr std::int64_t kLeastTensors = 2;
  const auto label_name = [&](const ChainOp& op) -> std::string_view {
    if (op.label_item < 0) return {};
    const auto label = op.label_item;
    return source.graph ? source.graph->name(source.graph->nodes[label])
                        : source.trace->name(source.trace->host[label]);
  };
  return std::ranges::count_if(chain.ops, [&](const ChainOp& op) {
           const HostEvent& event = source.trace->host[op.event];
           return source.trace->name(event) == "aten::zeros_like" &&
                  label_name(op).starts_with("Optimizer.step");
         }) >= kLeastTensors;
}

Result<std::vector<HostChain>> host_chains(
    const OverheadSource& source, const std::optional<std::pair<std::size_t, std::size_t>>& window,
    GraphLink* link_used) {
  const Trace& trace = *source.trace;
  auto steps = iterations(trace);
  std::vector<HostChain> chains;
  if (source.graph) {
    PERFMODEL_TRY(linked, link(*source.graph, trace));
    chains = chains_from_graph(trace, *source.graph, *linked, steps);
    if (link_used) *link_used = std::move(*linked);
  } else {
    chains = chains_from_trace(trace, steps);
  }
  if (window) {
    const auto [first, last] = *window;
    if (first >= last || last > steps.size()) {
      return decline("expected iterations within 0:" + std::to_string(steps.size()) + " of " +
                     trace.source + ", found " + std::to_string(first) + ":" +
                     std::to_string(last));
    }
    const std::int64_t begin = steps[first].begin_ns, end = steps[last - 1].end_ns;
    std::erase_if(chains, [&](const HostChain& chain) {
      const std::int64_t middle = (chain.begin_ns + chain.end_ns) / 2;
      return middle < begin || middle >= end;
    });
  }
  if (chains.empty()) {
    return decline("expected at least one iteration with ops, found none", trace.source);
  }
  return chains;
}

}  // namespace perfmodel
