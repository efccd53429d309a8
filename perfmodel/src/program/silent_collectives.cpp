#include "silent_collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "perfmodel/graph/detail/collective_name.hpp"

namespace perfmodel {
namespace {

bool is_call(std::string_view name) {
  const bool known = name.starts_with("c10d::") || name.starts_with("_c10d_functional::");
  return known && name.find("barrier") == name.npos && !collective_in_name(name).empty();
}

bool communicates_below(const ExecutionGraph& graph, const Node& node) {
  return std::ranges::any_of(graph.children(node), [&](std::int32_t index) {
    const Node& child = graph.node(index);
    return child.comm >= 0 || is_call(graph.name(child)) || communicates_below(graph, child);
  });
}

bool is_silent(const ExecutionGraph& graph, const Node& node) {
  return node.comm < 0 && is_call(graph.name(node)) && !communicates_below(graph, node);
}

bool is_message(std::string_view name) {
  const std::string_view kind = collective_in_name(name);
  return kind == "send" || kind == "recv";
}

/// Writes the records, in the order of the ops.
class SilentRecords {
 public:
  SilentRecords(const ExecutionGraph& graph, std::int64_t world)
      : made_(graph), world_(world), own_rank_(own_rank()) {}

  Result<ExecutionGraph> write() {
    for (Node& node : made_.nodes) {
      if (!is_silent(made_, node)) continue;
      PERFMODEL_TRY(record, record_of(node));
      node.comm = static_cast<std::int32_t>(made_.comm_records.size());
      made_.comm_records.push_back(std::move(*record));
    }
    return std::move(made_);
  }

 private:
  // The recorded rank is between its neighbours, or before the only one.
  std::int64_t own_rank() const {
    std::set<std::int64_t> peers;
    for (std::size_t i = 0; i < made_.nodes.size(); ++i) {
      const std::int64_t peer = peer_of_message(made_, static_cast<std::int32_t>(i));
      if (peer >= 0) peers.insert(peer);
    }
    if (peers.size() == 2) return (*peers.begin() + *peers.rbegin()) / 2;
    return peers.size() == 1 && *peers.begin() == 0 ? 1 : 0;
  }

  Result<CommRecord> record_of(const Node& node) {
    CommRecord record{.collective = std::string(collective_in_name(made_.name(node))),
                      .sequence = static_cast<std::int64_t>(made_.comm_records.size()) + 1};
    if (is_message(made_.name(node))) {
      const std::int64_t peer =
          peer_of_message(made_, static_cast<std::int32_t>(&node - &made_.nodes[0]));
      if (peer < 0) {
        return decline(
            fmt::format("expected sends and receives that name their peer, found {} (node {})",
                        made_.name(node), node.id),
            made_.source);
      }
      record.process_group = group_of_two(peer).name;
      record.group_size = 2;
      return record;
    }
    PERFMODEL_TRY(group, group_of(node));
    if (*group) record.process_group = (*group)->name;
    const bool sized = *group && (*group)->size > 0;
    record.group_size = sized ? (*group)->size : world_;
    return record;
  }

  const ProcessGroup& group_of_two(std::int64_t peer) {
    const auto [low, high] = std::minmax(own_rank_, peer);
    const std::string name = fmt::format("ranks {} and {}", low, high);
    auto& groups = made_.process_groups;
    const auto known = std::ranges::find(groups, name, &ProcessGroup::name);
    if (known != groups.end()) return *known;
    return groups.emplace_back(ProcessGroup{.name = name, .ranks = {low, high}, .size = 2});
  }

  Result<const ProcessGroup*> group_of(const Node& node) const {
    const ProcessGroup* only = nullptr;
    bool one_size = true;
    for (const ProcessGroup& group : made_.process_groups) {
      if (group.name.starts_with("ranks ")) continue;  // a group for messages
      if (names(node, group)) return &group;
      one_size &= !only || group.size == only->size;
      only = only ? only : &group;
    }
    if (one_size) return only;
    return decline(fmt::format("expected ops that name their process group, or groups of one size, "
                               "found {} (node {}) among {} groups",
                               made_.name(node), node.id, made_.process_groups.size()),
                   made_.source);
  }

  bool names(const Node& node, const ProcessGroup& group) const {
    return std::ranges::any_of(made_.inputs(node), [&](const Argument& argument) {
      return argument.kind == Argument::Kind::kString &&
             made_.names.text(argument.index) == group.name;
    });
  }

  ExecutionGraph made_;
  std::int64_t world_, own_rank_;
};

}  // namespace

std::size_t silent_collectives(const ExecutionGraph& graph) {
  return static_cast<std::size_t>(
      std::ranges::count_if(graph.nodes, [&](const Node& node) { return is_silent(graph, node); }));
}

Result<ExecutionGraph> record_silent_collectives(const ExecutionGraph& graph, std::int64_t world) {
  return SilentRecords(graph, world).write();
}

std::int64_t peer_of_message(const ExecutionGraph& graph, std::int32_t node) {
  constexpr std::size_t kPeer = 2;  // c10d::send(tensors, group, rank, tag)
  const auto is_op = [&](std::int32_t i) { return graph.name(i).starts_with("c10d::"); };
  const std::int32_t op = graph.find_around(node, is_op);
  if (op < 0 || !is_message(graph.name(op))) return -1;
  if (graph.name(op).find("any_source") != std::string_view::npos) return -1;  // names none
  const auto inputs = graph.inputs(op);
  if (inputs.size() <= kPeer || inputs[kPeer].kind != Argument::Kind::kInt) return -1;
  return inputs[kPeer].integer;
}

}  // namespace perfmodel
