#include "perfmodel/graph/rewrite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "base/budget.hpp"
#include "base/model_source.hpp"
#include "builders/emit/graph_builder.hpp"
#include "perfmodel/graph/graph_from_trace.hpp"
#include "written_graph.hpp"

namespace perfmodel {
namespace {

// A hash of a node's arguments without the ids of tensors, which every rewrite may hand out anew.
class Fingerprint {
 public:
  explicit Fingerprint(const ExecutionGraph& graph) : graph_(graph) {}

  std::uint64_t of(const Node& node) {
    hash_ =
        hash_mix(static_cast<std::uint64_t>(node.thread), static_cast<std::uint64_t>(node.scope));
    mix(std::bit_cast<std::uint64_t>(node.kernel_time_us));
    mix(std::bit_cast<std::uint64_t>(node.kernel_time_scale));
    mix(std::bit_cast<std::uint64_t>(node.index_zipf_exponent));
    add(graph_.inputs(node));
    add(graph_.outputs(node));
    return hash_;
  }

 private:
  template <class Integer>
  void mix(Integer value) {
    hash_ = hash_mix(hash_, static_cast<std::uint64_t>(value));
  }

  void add(std::span<const Argument> arguments) {
    mix(arguments.size());
    for (const Argument& argument : arguments) add(argument);
  }

  void add(const Argument& argument) {
    mix(argument.kind);
    switch (argument.kind) {
      case Argument::Kind::kTensor: add(graph_.tensors[argument.index]); break;
      case Argument::Kind::kInt:
      case Argument::Kind::kBool: mix(argument.integer); break;
      case Argument::Kind::kDouble: mix(std::bit_cast<std::uint64_t>(argument.real)); break;
      case Argument::Kind::kString:
      case Argument::Kind::kOpaque: mix(graph_.names.hash(argument.index)); break;
      case Argument::Kind::kList: add(graph_.elements(argument)); break;
      case Argument::Kind::kNone: break;
    }
  }

  void add(const Tensor& tensor) {
    mix(tensor.dtype);
    mix(tensor.device.kind);
    mix(tensor.device.index);
    mix(tensor.offset);
    mix(tensor.rank);
    mix(tensor.is_channels_last);
    for (std::int64_t size : graph_.shape(tensor)) mix(size);
  }

  const ExecutionGraph& graph_;
  std::uint64_t hash_ = 0;
};

// Fingerprints of the nodes of each name, sorted.
using ByName = std::map<std::string_view, std::vector<std::uint64_t>>;

ByName fingerprints(const ExecutionGraph& graph) {
  std::vector<std::vector<std::uint64_t>> by_id(graph.names.size());
  Fingerprint fingerprint(graph);
  for (const Node& node : graph.nodes) by_id[node.name].push_back(fingerprint.of(node));
  ByName found;
  for (std::size_t id = 0; id < by_id.size(); ++id) {
    if (by_id[id].empty()) continue;
    std::sort(by_id[id].begin(), by_id[id].end());
    found[graph.names.text(static_cast<NameId>(id))] = std::move(by_id[id]);
  }
  return found;
}

std::size_t common(const std::vector<std::uint64_t>& a, const std::vector<std::uint64_t>& b) {
  std::size_t count = 0;
  for (auto x = a.begin(), y = b.begin(); x != a.end() && y != b.end();) {
    if (*x == *y) {
      ++count, ++x, ++y;
    } else {
      *x < *y ? ++x : ++y;
    }
  }
  return count;
}

std::string most(const std::vector<std::pair<std::string, std::size_t>>& names,
                 std::string_view what) {
  constexpr std::size_t kMost = 3;
  std::string text;
  std::size_t others = 0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i >= kMost) {
      others += names[i].second;
    } else {
      text += fmt::format(", {} {} {}", names[i].second, names[i].first, what);
    }
  }
  if (others > 0) text += fmt::format(", {} others {}", others, what);
  return text;
}

Result<ExecutionGraph> apply(const NamedRewrite& rewrite, const ExecutionGraph& graph) {
  try {
    auto made = within_budget([&] { return rewrite.apply(graph); });
    if (!made || rewrite.of_ops_alone) return made;
    stop_point();
    if (auto good = check_written(graph, *made); !good) return Unexpected{good.error()};
    return made;
  } catch (const Contradiction& contradiction) {
    return fail(ErrorCode::kImpossible,
                fmt::format("the graph contradicts itself: {}", contradiction.what()));
  }
}

}  // namespace

Launching launching_of(std::span<const NamedRewrite> rewrites) {
  Launching made = Launching::kEager;
  for (const NamedRewrite& rewrite : rewrites) made = rewrite.launching.value_or(made);
  return made;
}

Result<void> check_rewrites(const ExecutionGraph& graph, std::span<const NamedRewrite> rewrites) {
  for (const NamedRewrite& rewrite : rewrites) {
    const std::string_view flag = std::string_view(rewrite.name).substr(0, rewrite.name.find(' '));
    const auto known = rewrite.of_ops_alone ? Result<void>() : check_tensors_known(graph, flag);
    if (!known) return known;
  }
  return {};
}

Result<ExecutionGraph> apply_rewrites(const ExecutionGraph& graph,
                                      std::span<const NamedRewrite> rewrites) {
  if (rewrites.empty()) return graph;
  if (auto good = check_rewrites(graph, rewrites); !good) return Unexpected{good.error()};
  Result<ExecutionGraph> made = ExecutionGraph{};
  for (std::size_t i = 0; i < rewrites.size(); ++i) {
    stop_point();
    auto next = apply(rewrites[i], i == 0 ? graph : *made);
    if (!next) {
      next.error().message = rewrites[i].name + ": " + next.error().message;
      return next;
    }
    made = std::move(next);
  }
  if (is_known_model(*made)) made->source = "built";
  return made;
}

GraphDifference graph_difference(const ExecutionGraph& before, const ExecutionGraph& after) {
  GraphDifference difference{.nodes_before = before.nodes.size(),
                             .nodes_after = after.nodes.size()};
  if (before.allow_tf32 != after.allow_tf32) difference.tf32 = after.allow_tf32;
  const ByName old_nodes = fingerprints(before), new_nodes = fingerprints(after);
  for (const auto& [name, found] : new_nodes) {
    const auto old = old_nodes.find(name);
    const std::size_t had = old == old_nodes.end() ? 0 : old->second.size();
    if (had > 0) {
      difference.nodes_changed += std::min(had, found.size()) - common(old->second, found);
    }
    if (found.size() > had) difference.added.emplace_back(name, found.size() - had);
  }
  for (const auto& [name, had] : old_nodes) {
    const auto found = new_nodes.find(name);
    const std::size_t left = found == new_nodes.end() ? 0 : found->second.size();
    if (left < had.size()) difference.gone.emplace_back(name, had.size() - left);
  }
  for (auto* names : {&difference.gone, &difference.added}) {
    std::stable_sort(names->begin(), names->end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
  }
  return difference;
}

std::string to_string(const GraphDifference& difference) {
  if (difference.none()) return "nothing changed";
  return fmt::format("{} of {} nodes changed", difference.nodes_changed, difference.nodes_before) +
         most(difference.gone, "gone") + most(difference.added, "added") +
         (difference.tf32 ? *difference.tf32 ? ", TF32 allowed" : ", TF32 no longer allowed" : "");
}

}  // namespace perfmodel
