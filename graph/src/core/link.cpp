#include "perfmodel/graph/detail/link.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "base/enum_name.hpp"

namespace perfmodel {
namespace {

constexpr NameId kUnknownName = 0xffffffff;

// Events or nodes of one thread in start order.
struct Sequence {
  std::vector<NameId> names;  // in the trace's pool
  std::vector<std::int32_t> items;
};

// Steps are numbered, but any step of a program is like any other.
constexpr std::string_view kStep = "ProfilerStep#";
constexpr NameId kStepName = 0xfffffffe;

std::string_view comparable(std::string_view name) {
  return name.starts_with(kStep) ? kStep : name;
}

NameId comparable_id(const Trace& trace, NameId name) {
  return trace.names.text(name).starts_with(kStep) ? kStepName : name;
}

std::map<std::int32_t, Sequence> graph_sequences(const ExecutionGraph& graph, const Trace& trace) {
  std::unordered_map<std::string_view, NameId> trace_names;
  for (NameId id = 0; id < trace.names.size(); ++id) {
    trace_names.emplace(comparable(trace.names.text(id)), comparable_id(trace, id));
  }
  std::vector<NameId> names;  // by the graph's names
  for (NameId id = 0; id < graph.names.size(); ++id) {
    const auto known = trace_names.find(comparable(graph.names.text(id)));
    names.push_back(known == trace_names.end() ? kUnknownName : known->second);
  }
  std::map<std::int32_t, Sequence> sequences;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.is_structural) continue;
    Sequence& sequence = sequences[node.thread];
    sequence.names.push_back(names[node.name]);
    sequence.items.push_back(static_cast<std::int32_t>(i));
  }
  return sequences;
}

// Compiled code records these while a profiler is on; the observer of graphs may lack them.
bool is_recorded_by_profiler(std::string_view name) {
  constexpr std::string_view kPrefixes[] = {"triton_", "## Call CompiledFxGraph",
                                            "Pregraph bytecode",
                                            "AOTDispatcher Runtime Wrapper Prologue"};
  return std::ranges::any_of(kPrefixes,
                             [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// By name: whether no node of the graph can be such an event.
std::vector<bool> names_of_profiler(const ExecutionGraph& graph, const Trace& trace) {
  std::unordered_set<std::string_view> known;
  for (NameId id = 0; id < graph.names.size(); ++id) known.insert(graph.names.text(id));
  std::vector<bool> made(trace.names.size());
  for (NameId id = 0; id < trace.names.size(); ++id) {
    const std::string_view name = trace.names.text(id);
    made[id] = is_recorded_by_profiler(name) && !known.contains(name);
  }
  return made;
}

std::vector<Sequence> trace_sequences(const ExecutionGraph& graph, const Trace& trace) {
  std::vector<Sequence> sequences(trace.threads.size());
  const std::vector<bool> passed_over = names_of_profiler(graph, trace);
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (event.kind == HostKind::kCall || event.thread < 0 || passed_over[event.name]) continue;
    sequences[event.thread].items.push_back(static_cast<std::int32_t>(i));
  }
  for (Sequence& sequence : sequences) {
    // Whole microseconds make ties; the event index is the order in which ops really started.
    std::stable_sort(
        sequence.items.begin(), sequence.items.end(), [&](std::int32_t a, std::int32_t b) {
          const HostEvent& x = trace.host[a];
          const HostEvent& y = trace.host[b];
          if (x.start_ns != y.start_ns) return x.start_ns < y.start_ns;
          return x.event_index >= 0 && y.event_index >= 0 && x.event_index < y.event_index;
        });
    for (std::int32_t item : sequence.items) {
      sequence.names.push_back(comparable_id(trace, trace.host[item].name));
    }
  }
  return sequences;
}

// Starts of all non-overlapping occurrences of `pattern` in `text` (Knuth, Morris, Pratt).
std::vector<std::size_t> find_all(const std::vector<NameId>& text,
                                  const std::vector<NameId>& pattern) {
  std::vector<std::size_t> found;
  if (pattern.empty() || text.size() < pattern.size()) return found;
  std::vector<std::size_t> border(pattern.size(), 0);
  for (std::size_t i = 1, k = 0; i < pattern.size(); ++i) {
    while (k > 0 && pattern[i] != pattern[k]) k = border[k - 1];
    if (pattern[i] == pattern[k]) ++k;
    border[i] = k;
  }
  for (std::size_t i = 0, k = 0; i < text.size(); ++i) {
    while (k > 0 && text[i] != pattern[k]) k = border[k - 1];
    if (text[i] == pattern[k]) ++k;
    if (k == pattern.size()) {
      found.push_back(i + 1 - k);
      k = 0;
    }
  }
  return found;
}

void set_span(GraphOccurrence& occurrence, const Trace& trace) {
  bool first = true;
  for (std::int32_t event : occurrence.event_of_node) {
    if (event < 0) continue;
    const HostEvent& host = trace.host[event];
    occurrence.begin_ns = first ? host.start_ns : std::min(occurrence.begin_ns, host.start_ns);
    occurrence.end_ns = first ? host.end_ns() : std::max(occurrence.end_ns, host.end_ns());
    first = false;
  }
}

std::size_t count_linked(const GraphOccurrence& occurrence) {
  return static_cast<std::size_t>(std::count_if(occurrence.event_of_node.begin(),
                                                occurrence.event_of_node.end(),
                                                [](std::int32_t event) { return event >= 0; }));
}

// Links by an id that both files carry. Only trusted where nearly every name agrees.
bool link_by_id(const ExecutionGraph& graph, const Trace& trace,
                std::int64_t HostEvent::*id_of_event, GraphLink& result) {
  std::vector<std::pair<std::int64_t, std::int32_t>> events;  // the first one of an id counts
  for (std::size_t i = 0; i < trace.host.size(); ++i) {
    const HostEvent& event = trace.host[i];
    if (event.kind != HostKind::kCall && event.*id_of_event > 0) {
      events.emplace_back(event.*id_of_event, static_cast<std::int32_t>(i));
    }
  }
  if (events.empty()) return false;
  std::ranges::sort(events);
  GraphOccurrence occurrence;
  occurrence.event_of_node.assign(graph.nodes.size(), -1);
  std::size_t equal = 0;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.is_structural || node.rf_id <= 0) continue;
    const auto at = std::ranges::lower_bound(events, std::pair{node.rf_id, 0});
    if (at == events.end() || at->first != node.rf_id) continue;
    if (trace.name(trace.host[at->second]) != graph.name(node)) continue;
    occurrence.event_of_node[i] = at->second;
    ++equal;
  }
  if (equal * 100 < result.nodes * 99) return false;
  set_span(occurrence, trace);
  result.occurrences.push_back(std::move(occurrence));
  return true;
}

// Walks both sequences side by side; at a difference it looks for the nearest point where eight
// names agree again, skipping the fewest items on either side.
std::size_t align(const Sequence& graph, const Sequence& trace, std::size_t trace_begin,
                  std::vector<std::int32_t>* event_of_node) {
  constexpr std::size_t kWindow = 256, kAgree = 8;
  std::size_t g = 0, t = trace_begin, matched = 0;
  const auto agree = [&](std::size_t a, std::size_t b) {
    for (std::size_t i = 0; i < kAgree; ++i) {
      if (a + i >= graph.names.size() || b + i >= trace.names.size()) return i > 0;
      if (graph.names[a + i] != trace.names[b + i]) return false;
    }
    return true;
  };
  while (g < graph.names.size() && t < trace.names.size()) {
    if (graph.names[g] == trace.names[t]) {
      if (event_of_node) {
        (*event_of_node)[graph.items[g]] = trace.items[t];
      }
      ++g, ++t, ++matched;
      continue;
    }
    bool found = false;
    for (std::size_t skip = 1; skip <= kWindow && !found; ++skip) {
      for (std::size_t skip_graph = 0; skip_graph <= skip && !found; ++skip_graph) {
        if (agree(g + skip_graph, t + skip - skip_graph)) {
          g += skip_graph;
          t += skip - skip_graph;
          found = true;
        }
      }
    }
    if (!found) break;
  }
  return matched;
}

}  // namespace

std::string_view to_string(GraphLink::Method method) {
  static constexpr std::string_view kNames[] = {"record function id", "external id", "thread order",
                                                "alignment"};
  return enum_name(kNames, method);
}

Result<GraphLink> link(const ExecutionGraph& graph, const Trace& trace) {
  GraphLink result;
  result.nodes =
      static_cast<std::size_t>(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                                             [](const Node& node) { return !node.is_structural; }));
  for (const auto& [id, method] :
       {std::pair{&HostEvent::record_function_id, GraphLink::Method::kRecordFunctionId},
        std::pair{&HostEvent::external_id, GraphLink::Method::kExternalId}}) {
    if (!link_by_id(graph, trace, id, result)) continue;
    result.method = method;
    result.linked_nodes = count_linked(result.occurrences.front());
    return result;
  }

  const auto in_graph = graph_sequences(graph, trace);
  const auto in_trace = trace_sequences(graph, trace);
  // The graph's longest-standing thread (the main one) fixes the occurrences, others join by time.
  bool first_thread = true, exact = true;
  for (const auto& [thread, sequence] : in_graph) {
    const Sequence* best = nullptr;
    std::vector<std::size_t> starts;
    for (const Sequence& candidate : in_trace) {
      auto found = find_all(candidate.names, sequence.names);
      if (found.size() > starts.size()) {
        starts = std::move(found);
        best = &candidate;
      }
    }
    std::vector<GraphOccurrence> partial;
    if (best) {
      for (std::size_t start : starts) {
        GraphOccurrence occurrence;
        occurrence.event_of_node.assign(graph.nodes.size(), -1);
        for (std::size_t i = 0; i < sequence.items.size(); ++i) {
          occurrence.event_of_node[sequence.items[i]] = best->items[start + i];
        }
        set_span(occurrence, trace);
        partial.push_back(std::move(occurrence));
      }
    } else {
      exact = false;
      std::size_t most = 0;
      for (const Sequence& candidate : in_trace) {
        const std::size_t matched = align(sequence, candidate, 0, nullptr);
        if (matched > most) {
          most = matched;
          best = &candidate;
        }
      }
      if (best && most * 2 > sequence.items.size()) {
        GraphOccurrence occurrence;
        occurrence.event_of_node.assign(graph.nodes.size(), -1);
        align(sequence, *best, 0, &occurrence.event_of_node);
        set_span(occurrence, trace);
        partial.push_back(std::move(occurrence));
      }
    }
    if (first_thread) {
      result.occurrences = std::move(partial);
      first_thread = false;
      continue;
    }
    for (std::size_t i = 0; i < result.occurrences.size(); ++i) {
      GraphOccurrence& whole = result.occurrences[i];
      const std::int64_t limit = i + 1 < result.occurrences.size()
                                     ? result.occurrences[i + 1].begin_ns
                                     : std::numeric_limits<std::int64_t>::max();
      for (const GraphOccurrence& part : partial) {
        if (part.begin_ns < whole.begin_ns || part.begin_ns >= limit) continue;
        for (std::size_t n = 0; n < part.event_of_node.size(); ++n) {
          if (part.event_of_node[n] >= 0) whole.event_of_node[n] = part.event_of_node[n];
        }
        whole.end_ns = std::max(whole.end_ns, part.end_ns);
        break;
      }
    }
  }
  // Keep the occurrences that hold all threads; a cut-off one at the edge of the file does not.
  std::size_t most = 0;
  for (const auto& occurrence : result.occurrences) most = std::max(most, count_linked(occurrence));
  std::erase_if(result.occurrences,
                [&](const GraphOccurrence& o) { return count_linked(o) < most; });
  result.method = exact ? GraphLink::Method::kThreadOrder : GraphLink::Method::kAlignment;
  result.linked_nodes = most;
  if (most * 2 < result.nodes || result.occurrences.empty()) {
    return fail(
        ErrorCode::kImpossible,
        fmt::format("expected a graph and a trace of the same program, found {} of {} nodes "
                    "of {} in {}",
                    most, result.nodes, graph.source, trace.source));
  }
  return result;
}

}  // namespace perfmodel
