#include "alike_ops.hpp"

#include <unordered_map>

namespace perfmodel {
namespace {

std::size_t place_of(std::int32_t event) { return static_cast<std::size_t>(event); }

// Hash of an event's own description.
std::uint64_t own_facts(const Trace& trace, const TraceNesting& nesting, std::int32_t event) {
  const HostEvent& at = trace.host[place_of(event)];
  std::uint64_t hash = hash_mix(at.name, static_cast<std::uint64_t>(at.kind));
  hash = hash_mix(hash, static_cast<std::uint64_t>(at.arguments + 1));
  hash = hash_mix(hash, static_cast<std::uint64_t>(nesting.side[place_of(event)]));
  hash = hash_mix(hash, is_backward_of_engine(trace, nesting, event) ? 1 : 0);
  if (at.collective < 0) return hash;
  const CollectiveNote& note = trace.collectives[place_of(at.collective)];
  hash = hash_mix(hash, (std::uint64_t{note.kind} << 32) | note.dtype);
  hash = hash_mix(hash, static_cast<std::uint64_t>(note.in_elements));
  hash = hash_mix(hash, static_cast<std::uint64_t>(note.out_elements));
  return hash_mix(hash, static_cast<std::uint64_t>(note.group_size));
}

// Per host event: hash with all events inside. An event comes after its parent.
std::vector<std::uint64_t> facts_of_subtrees(const Trace& trace, const TraceNesting& nesting,
                                             std::span<const std::int32_t> events) {
  std::vector<std::uint64_t> hash(trace.host.size(), 0);
  for (auto at = events.rbegin(); at != events.rend(); ++at) {
    const std::int32_t event = *at;
    std::uint64_t& own = hash[place_of(event)];
    own = hash_mix(own_facts(trace, nesting, event), own);
    const std::int32_t parent = nesting.parent[place_of(event)];
    if (parent >= 0) hash[place_of(parent)] = hash_mix(hash[place_of(parent)], own);
  }
  return hash;
}

// Per host event: the outermost op around it, or itself; -1: none.
std::vector<std::int32_t> outermost_ops(const Trace& trace, const TraceNesting& nesting,
                                        std::span<const std::int32_t> events) {
  std::vector<std::int32_t> outermost(trace.host.size(), -1);
  for (const std::int32_t event : events) {
    std::int32_t& own = outermost[place_of(event)];
    const std::int32_t parent = nesting.parent[place_of(event)];
    if (parent >= 0) own = outermost[place_of(parent)];
    if (own < 0 && trace.host[place_of(event)].kind == HostKind::kOp) own = event;
  }
  return outermost;
}

struct BackwardOp {
  std::int32_t event = -1, forward = -1;  // -1: not recorded
};

// In the order of `events`, as forward_partners finds them in a graph.
std::vector<BackwardOp> backward_ops(const Trace& trace, const TraceNesting& nesting,
                                     std::span<const std::int32_t> events) {
  std::vector<BackwardOp> made;
  std::unordered_map<std::int64_t, std::int32_t> latest;  // by autograd's number
  for (const std::int32_t event : events) {
    if (trace.host[place_of(event)].kind != HostKind::kOp) continue;
    const std::int64_t number = autograd_number(trace, event);
    if (number < 0) continue;
    if (!is_backward_of_engine(trace, nesting, event)) {
      latest[number] = event;
      continue;
    }
    const auto at = latest.find(number);
    made.push_back({event, at == latest.end() ? -1 : at->second});
  }
  return made;
}

// The events of each outermost op in one run.
struct OpMembers {
  std::vector<std::int32_t> events;
  std::vector<std::uint32_t> begin, count;  // per host event; of outermost ops
};

OpMembers members_of(const std::vector<std::int32_t>& outermost,
                     std::span<const std::int32_t> events) {
  OpMembers made;
  made.begin.assign(outermost.size(), 0);
  made.count.assign(outermost.size(), 0);
  std::size_t all = 0;
  for (const std::int32_t event : events) {
    const std::int32_t op = outermost[place_of(event)];
    if (op < 0) continue;
    ++made.count[place_of(op)];
    ++all;
  }
  std::uint32_t next = 0;
  for (const std::int32_t event : events) {
    if (outermost[place_of(event)] != event) continue;
    made.begin[place_of(event)] = next;
    next += made.count[place_of(event)];
    made.count[place_of(event)] = 0;
  }
  made.events.resize(all);
  for (const std::int32_t event : events) {
    const std::int32_t op = outermost[place_of(event)];
    if (op < 0) continue;
    made.events[made.begin[place_of(op)] + made.count[place_of(op)]++] = event;
  }
  return made;
}

}  // namespace

AlikeOps find_alike_ops(const Trace& trace, const TraceNesting& nesting,
                        std::span<const std::int32_t> events) {
  const std::vector<std::int32_t> outermost = outermost_ops(trace, nesting, events);
  const std::vector<BackwardOp> backward = backward_ops(trace, nesting, events);
  std::vector<std::uint64_t> kind = facts_of_subtrees(trace, nesting, events);
  std::vector<std::uint64_t> of_forward(backward.size(), 1);
  for (std::size_t i = 0; i < backward.size(); ++i) {
    if (backward[i].forward >= 0) of_forward[i] = kind[place_of(backward[i].forward)];
  }
  for (std::size_t i = 0; i < backward.size(); ++i) {
    std::uint64_t& own = kind[place_of(outermost[place_of(backward[i].event)])];
    own = hash_mix(own, of_forward[i]);
  }

  const OpMembers members = members_of(outermost, events);
  AlikeOps made{.needed = std::vector<bool>(trace.host.size(), false),
                .like = std::vector<std::int32_t>(trace.host.size(), -1)};
  const auto need = [&](std::int32_t op) {
    for (std::uint32_t i = 0; i < members.count[place_of(op)]; ++i) {
      made.needed[place_of(members.events[members.begin[place_of(op)] + i])] = true;
    }
  };
  std::unordered_map<std::uint64_t, std::int32_t> first_of_kind;
  for (const std::int32_t event : events) {
    if (outermost[place_of(event)] != event) continue;
    const auto [first, added] = first_of_kind.try_emplace(kind[place_of(event)], event);
    if (added) need(event);
    for (std::uint32_t i = 0; i < members.count[place_of(event)]; ++i) {
      made.like[place_of(members.events[members.begin[place_of(event)] + i])] =
          members.events[members.begin[place_of(first->second)] + i];
    }
  }
  for (const BackwardOp& op : backward) {
    if (op.forward < 0 || !made.needed[place_of(op.event)]) continue;
    need(outermost[place_of(op.forward)]);
  }
  return made;
}

}  // namespace perfmodel
