#include "perfmodel/graph/rewrite.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "rewrite/graph_copy.hpp"
#include "rewrite/name_pattern.hpp"

namespace perfmodel {
namespace {

std::optional<std::pair<std::int64_t, std::int64_t>> id_range(std::string_view text) {
  const std::size_t colon = text.find(':');
  std::pair<std::int64_t, std::int64_t> range;
  if (colon == std::string_view::npos) return {};
  const auto parse = [](std::string_view number, std::int64_t& value) {
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
    return error == std::errc() && end == number.data() + number.size();
  };
  if (!parse(text.substr(0, colon), range.first) || !parse(text.substr(colon + 1), range.second)) {
    return {};
  }
  return range;
}

// Nodes with such a name and the nodes below them.
std::vector<bool> named_trees(const ExecutionGraph& graph, std::string_view pattern) {
  const std::vector<bool> names = matching_names(graph, pattern);
  return at_or_below(graph, [&](std::size_t i) {
    return !graph.nodes[i].is_structural && names[graph.nodes[i].name];
  });
}

bool has_op(const ExecutionGraph& graph, const std::vector<bool>& nodes) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] && !graph.nodes[i].is_label) return true;
  }
  return false;
}

ExecutionGraph copy_kept(const ExecutionGraph& graph, const std::vector<bool>& kept) {
  GraphCopy copy(graph);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (kept[i]) copy.copy(static_cast<std::int32_t>(i));
  }
  return copy.finish();
}

// Changes the ops that match and lie under none that does.
template <class Change>
Result<ExecutionGraph> change_outermost(const ExecutionGraph& graph, std::string_view pattern,
                                        Change&& change) {
  const std::vector<bool> names = matching_names(graph, pattern);
  const std::vector<bool> of_op = at_or_below(graph, [&](std::size_t i) {
    return !graph.nodes[i].is_label && !graph.nodes[i].is_structural;
  });
  // Collectives are labels inside of ops ("nccl:all_reduce"); labels around ops have no kernels.
  const auto match = [&](std::size_t i) { return of_op[i] && names[graph.nodes[i].name]; };
  const std::vector<bool> below = at_or_below(graph, match);
  ExecutionGraph made = graph;
  bool any = false;
  for (std::size_t i = 0; i < made.nodes.size(); ++i) {
    const std::int32_t parent = made.nodes[i].parent;
    const bool inner = parent >= 0 && below[parent];
    if (!match(i) || inner) continue;
    change(made.nodes[i]);
    any = true;
  }
  if (!any) return no_match(graph, pattern, "an op");
  return made;
}

Result<void> check_value(double value, double most, std::string_view what) {
  if (value >= 0 && value <= most) return {};
  return fail(ErrorCode::kImpossible,
              fmt::format("expected {} from 0 to {}, found {}", what, most, value));
}

}  // namespace

Result<ExecutionGraph> keep_subgraph(const ExecutionGraph& graph, std::string_view pattern) {
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  const auto range = id_range(pattern);
  std::vector<bool> kept;
  if (range) {
    std::vector<bool> first(graph.nodes.size());
    for (const std::int32_t op : top_level_ops(graph)) {
      const std::int64_t id = graph.node(op).id;
      first[op] = id >= range->first && id < range->second;
    }
    kept = at_or_below(graph, [&](std::size_t i) { return first[i]; });
  } else {
    kept = named_trees(graph, pattern);
  }
  if (range && !has_op(graph, kept)) {
    return fail(ErrorCode::kUnknownName,
                fmt::format("expected top-level ops with ids {}, found none", pattern));
  }
  if (!has_op(graph, kept)) return no_match(graph, pattern, "a label or op");
  // Labels around them stay as well.
  std::vector<bool> around = kept;
  for (std::size_t i = kept.size(); i-- > 0;) {
    const std::int32_t parent = graph.nodes[i].parent;
    if (around[i] && parent >= 0) around[parent] = true;
    kept[i] = kept[i] || (around[i] && graph.nodes[i].is_label);
  }
  return copy_kept(graph, kept);
}

Result<ExecutionGraph> remove_ops(const ExecutionGraph& graph, std::string_view pattern) {
  if (auto good = check_nesting(graph); !good) return Unexpected{good.error()};
  std::vector<bool> kept = named_trees(graph, pattern);
  if (std::ranges::find(kept, true) == kept.end()) {
    return no_match(graph, pattern, "an op or label");
  }
  kept.flip();
  if (has_op(graph, kept)) return copy_kept(graph, kept);
  return fail(ErrorCode::kImpossible,
              fmt::format("expected ops besides \"{}\", found none", pattern));
}

Result<ExecutionGraph> set_kernel_time(const ExecutionGraph& graph,
                                       const KernelTimeOptions& options) {
  PERFMODEL_TRY(good, check_value(options.value, kMostKernelTimeUs, "a time in us"));
  return change_outermost(graph, options.pattern, [&](Node& node) {
    node.kernel_time_us = options.value;
    node.kernel_time_scale = 1;
  });
}

Result<ExecutionGraph> scale_kernel_time(const ExecutionGraph& graph,
                                         const KernelTimeOptions& options) {
  PERFMODEL_TRY(good, check_value(options.value, kMostKernelTimeScale, "a factor"));
  auto made = change_outermost(graph, options.pattern, [&](Node& node) {
    node.kernel_time_scale *= options.value;
    if (good)
      good = check_value(node.kernel_time_scale, kMostKernelTimeScale, "a product of factors");
  });
  if (!good) return Unexpected{good.error()};
  return made;
}

}  // namespace perfmodel
