#include "loop_groups.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/contains.hpp"

namespace perfmodel {

LoopGroups::LoopGroups(const LoopGraph& graph, std::span<const std::int32_t> ops,
                       const std::vector<bool>& is_output)
    : graph_(graph),
      is_output_(is_output),
      inlined_(inline_pointwise_ops(graph, ops, is_output)),
      group_of_(graph.ops.size(), -1),
      readers_(graph.values.size()) {
  for (const std::int32_t op : ops) {
    if (!inlined_[op].in_memory) continue;
    group_of_[op] = static_cast<std::int32_t>(groups_.size());
    const LoopOp& of = graph_.ops[op];
    groups_.push_back({.kind = of.kind == LoopKind::kScatter ? LoopKind::kPointwise : of.kind,
                       .ops = {op},
                       .rows = of.rows,
                       .columns = of.columns});
    for (const LoopRead& read : inlined_[op].reads) readers_[read.value].push_back(op);
  }
}

std::int32_t LoopGroups::group_now(std::int32_t group) const {
  while (groups_[group].ops.empty()) group = merged_into_[group];
  return group;
}

bool LoopGroups::has_way_around(std::int32_t from, std::int32_t to) const {
  std::vector<bool> seen(groups_.size());
  std::vector<std::int32_t> open = {from};
  seen[from] = true;
  while (!open.empty()) {
    const std::int32_t at = open.back();
    open.pop_back();
    for (const std::int32_t op : groups_[at].ops) {
      for (const std::int32_t written : graph_.ops[op].writes) {
        for (const std::int32_t reader : readers_[written]) {
          const std::int32_t group = group_of_[reader];
          if (group == to && at != from) return true;
          if (group == to || seen[group]) continue;
          seen[group] = true;
          open.push_back(group);
        }
      }
    }
  }
  return false;
}

void LoopGroups::fuse(std::int32_t into, std::int32_t other) {
  Group &a = groups_[into], &b = groups_[other];
  if (a.kind == LoopKind::kPointwise && b.kind != LoopKind::kLibrary) {
    a.kind = b.kind;
    a.rows = b.rows;
    a.columns = b.columns;
  }
  merged_into_.resize(groups_.size(), -1);
  merged_into_[other] = into;
  for (const std::int32_t op : b.ops) group_of_[op] = into;
  a.ops.insert(a.ops.end(), b.ops.begin(), b.ops.end());
  std::ranges::sort(a.ops);
  b.ops.clear();
}

// Its place among the ops; a padded copy, which came into the graph later, goes before its product.
std::int32_t LoopGroups::turn(std::int32_t group) const {
  const std::int32_t first = groups_[group].ops.front();
  const std::vector<std::int32_t>& writes = graph_.ops[first].writes;
  const bool is_copy = !writes.empty() && value(writes.front()).columns > 0;
  return is_copy ? value(writes.front()).readers.front() : first;
}

std::vector<LoopKernel> LoopGroups::kernels() const {
  std::vector<std::int32_t> waits_for(groups_.size());
  std::vector<std::vector<std::int32_t>> next(groups_.size());
  for (std::size_t index = 0; index < graph_.values.size(); ++index) {
    const std::int32_t made_by = value(static_cast<std::int32_t>(index)).made_by;
    if (made_by < 0 || group_of_[made_by] < 0) continue;
    for (const std::int32_t reader : readers_[index]) {
      if (group_of_[reader] == group_of_[made_by]) continue;
      next[group_of_[made_by]].push_back(group_of_[reader]);
      ++waits_for[group_of_[reader]];
    }
  }
  std::set<std::pair<std::int32_t, std::int32_t>> ready;
  const auto order = [&](std::int32_t group) { return std::pair(turn(group), group); };
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const auto group = static_cast<std::int32_t>(i);
    if (!groups_[i].ops.empty() && waits_for[i] == 0) ready.insert(order(group));
  }
  std::vector<LoopKernel> made;
  while (!ready.empty()) {
    const std::int32_t group = ready.begin()->second;
    ready.erase(ready.begin());
    made.push_back(kernel(group));
    for (const std::int32_t after : next[group]) {
      if (--waits_for[after] == 0) ready.insert(order(after));
    }
  }
  return made;
}
LoopKernel LoopGroups::kernel(std::int32_t index) const {
  const Group& group = groups_[index];
  LoopKernel made{.kind = group.kind,
                  .ops = group.ops,
                  .computed = {},
                  .reads = {},
                  .writes = {},
                  .rows = group.rows,
                  .columns = group.columns,
                  .product = group.product};
  for (const std::int32_t op : group.ops) {
    add_each_once(made.computed, inlined_[op].ops);
    for (const LoopRead& read : inlined_[op].reads) {
      const std::int32_t made_by = value(read.value).made_by;
      if (made_by >= 0 && group_of_[made_by] == index) continue;
      const auto same = std::ranges::find(made.reads, read.value, &LoopRead::value);
      if (same == made.reads.end()) {
        made.reads.push_back(read);
      } else {
        same->numel = std::max(same->numel, read.numel);
      }
    }
    for (const std::int32_t written : graph_.ops[op].writes) {
      const bool is_read = std::ranges::any_of(
          readers_[written], [&](std::int32_t reader) { return group_of_[reader] != index; });
      if (is_read || is_output_[written] || group.kind == LoopKind::kLibrary) {
        made.writes.push_back(written);
      }
    }
  }
  std::ranges::sort(made.computed);
  return made;
}

}  // namespace perfmodel
