#include "whole_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "perfmodel/graph/detail/event_names.hpp"

namespace perfmodel {
namespace {

// Recorded ids are close together: a bit for each is faster than sorting them.
bool surely_differ(const std::vector<std::int64_t>& ids) {
  if (ids.empty()) return true;
  const auto [least, largest] = std::ranges::minmax(ids);
  const std::uint64_t range =
      static_cast<std::uint64_t>(largest) - static_cast<std::uint64_t>(least);
  if (range / 64 >= ids.size()) return false;
  std::vector<bool> seen(range + 1);
  return std::ranges::none_of(ids, [&, first = least](std::int64_t id) {
    const auto at = static_cast<std::size_t>(id - first);
    const bool is_known = seen[at];
    seen[at] = true;
    return is_known;
  });
}

// Later code may recurse from a node to its children: no further than `depth`.
Result<void> check_depths(const ExecutionGraph& graph, const std::filesystem::path& file,
                          std::size_t depth) {
  const auto& nodes = graph.nodes;
  constexpr std::size_t kUnknown = 0, kOnThisWalk = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> depths(nodes.size(), kUnknown);
  std::vector<std::size_t> walk;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    std::size_t above = 0;
    for (auto at = static_cast<std::int32_t>(i); at >= 0;) {
      const auto node = static_cast<std::size_t>(at);
      if (depths[node] == kOnThisWalk) {
        return format_error(
            file, "/nodes",
            fmt::format("expected a tree, found a cycle of parents through id {}", nodes[node].id));
      }
      if (depths[node] != kUnknown) {
        above = depths[node];
        break;
      }
      depths[node] = kOnThisWalk;
      walk.push_back(node);
      at = nodes[node].parent;
    }
    for (; !walk.empty(); walk.pop_back()) depths[walk.back()] = ++above;
    if (above > depth) {
      return format_error(file, "/nodes",
                          fmt::format("expected at most {} nodes within nodes, found more around "
                                      "id {} (limit depth; --limit depth=N raises it)",
                                      depth, nodes[i].id));
    }
  }
  return {};
}

}  // namespace

Unexpected format_error(const std::filesystem::path& file, std::string pointer,
                        std::string message) {
  return fail(ErrorCode::kFormat, std::move(message), file, std::move(pointer));
}

Result<void> check_ids(const ExecutionGraph& graph, const std::filesystem::path& file) {
  std::vector<std::int64_t> ids;
  ids.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) ids.push_back(node.id);
  if (surely_differ(ids)) return {};
  std::sort(ids.begin(), ids.end());
  const auto twice = std::adjacent_find(ids.begin(), ids.end());
  if (twice == ids.end()) return {};
  bool seen = false;
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    if (graph.nodes[i].id != *twice) continue;
    if (seen) {
      return format_error(file, fmt::format("/nodes/{}", i),
                          fmt::format("expected unique ids, found id {} twice", *twice));
    }
    seen = true;
  }
  return {};
}

void number_nodes_without_id(ExecutionGraph& graph) {
  auto& nodes = graph.nodes;
  const auto count = std::ranges::count(nodes, 0, &Node::id);
  const std::int64_t largest = std::ranges::max(nodes, {}, &Node::id).id;
  if (count < 2 || largest > std::numeric_limits<std::int64_t>::max() - count) return;
  std::int64_t next = largest;
  for (Node& node : nodes) {
    if (node.id == 0 && !is_structural_name(graph.name(node))) node.id = ++next;
  }
  graph.warnings.push_back(
      fmt::format("{} nodes have id 0, as ops with nested tensors do: they are kept as the last "
                  "calls of their parents, and calls below them have none",
                  next - largest));
}

void drop_repeated_ids(ExecutionGraph& graph) {
  std::unordered_set<std::int64_t> seen;
  const std::size_t before = graph.nodes.size();
  std::optional<std::int64_t> first;
  std::erase_if(graph.nodes, [&](const Node& node) {
    if (seen.insert(node.id).second) return false;
    if (!first) first = node.id;
    return true;
  });
  if (graph.nodes.size() == before) return;
  graph.warnings.push_back(
      fmt::format("{} nodes were left out because a node before them has their id, the first one "
                  "id {}",
                  before - graph.nodes.size(), *first));
}

Result<void> check_structure(ExecutionGraph& graph, const std::filesystem::path& file,
                             std::size_t depth, bool salvaged) {
  if (auto sound = check_depths(graph, file, depth); !sound) return sound;
  const auto& nodes = graph.nodes;
  std::size_t orphans = 0;
  for (const Node& node : nodes) orphans += node.is_orphan;
  if (orphans > 0) {
    graph.warnings.push_back(
        fmt::format("{} of {} nodes have a parent that is not in the file (ops still open when "
                    "recording stopped{})",
                    orphans, nodes.size(), salvaged ? ", or left out here" : ""));
  }
  return {};
}

void warn_of_missing_kernels(ExecutionGraph& graph) {
  const auto is_region = [&](std::int32_t node) { return is_compiled_region(graph.name(node)); };
  std::size_t regions = 0;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(graph.nodes.size()); ++i) {
    const Node& node = graph.node(i);
    if (graph.names.text(node.kernel_backend) == "triton") return;
    const bool is_outermost = is_region(i) && graph.find_around(node.parent, is_region) < 0;
    regions += is_outermost && node.children_count > 0;
  }
  if (regions == 0) return;
  graph.warnings.push_back(fmt::format(
      "{} no kernel that Triton wrote: an observer without a profiler does not see them, and their "
      "time is missing here; a trace of the step has them",
      regions == 1 ? "a compiled region names" : fmt::format("{} compiled regions name", regions)));
}

}  // namespace perfmodel
