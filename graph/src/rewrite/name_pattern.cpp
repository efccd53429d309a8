#include "name_pattern.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/edit_distance.hpp"

namespace perfmodel {
namespace {

// Glob with '*' alone; linear, for both may be long.
bool matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, restart = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      restart = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++restart;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// Names of the graph that the pattern may have meant.
std::string near_names(const ExecutionGraph& graph, std::string_view pattern) {
  constexpr std::size_t kLongest = 200;
  if (pattern.size() > kLongest) pattern = pattern.substr(0, kLongest);
  std::vector<bool> seen(graph.names.size());
  std::vector<std::pair<std::size_t, std::string>> names;
  for (const Node& node : graph.nodes) {
    if (seen[node.name] || node.is_structural || graph.name(node).size() > kLongest) continue;
    seen[node.name] = true;
    const std::string_view name = graph.name(node);
    const bool inside = name.find(pattern) != std::string_view::npos;
    names.emplace_back(inside ? 0 : edit_distance(pattern, name), name);
  }
  return nearest_three(std::move(names));
}

}  // namespace

Unexpected no_match(const ExecutionGraph& graph, std::string_view pattern, std::string_view what) {
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected {} that matches \"{}\", found none; near: {}", what, pattern,
                          near_names(graph, pattern)));
}

std::vector<bool> matching_names(const ExecutionGraph& graph, std::string_view pattern) {
  std::vector<bool> found(graph.names.size());
  for (std::size_t id = 0; id < found.size(); ++id) {
    found[id] = matches(pattern, graph.names.text(static_cast<NameId>(id)));
  }
  return found;
}

}  // namespace perfmodel
