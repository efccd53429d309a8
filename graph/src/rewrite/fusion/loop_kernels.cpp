#include "loop_kernels.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/contains.hpp"
#include "loop_inlining.hpp"

namespace perfmodel {
namespace {

// torch/_inductor/config.py: max_fusion_size; scheduler.py: nodes further apart are not fused for
// what they both read.
constexpr std::size_t kMostFused = 64;
constexpr std::int32_t kFarApart = 64;

class LoopScheduler {
 public:
  LoopScheduler(const LoopGraph& graph, std::span<const std::int32_t> ops,
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

  std::vector<LoopKernel> schedule() {
    while (fuse_once()) {
    }
    return write();
  }

 private:
  struct Group {
    LoopKind kind = LoopKind::kPointwise;
    std::vector<std::int32_t> ops;  // sorted
    std::int64_t rows = 1, columns = 1;
  };
  struct Candidate {
    bool same_kind = false;
    std::int64_t bytes = 0;
    std::int32_t distance = 0, first = 0, second = 0;  // groups
    auto key() const { return std::tuple(!same_kind, -bytes, distance, first, second); }
  };

  const LoopValue& value(std::int32_t index) const { return graph_.values[index]; }
  std::int64_t bytes_of(const LoopRead& read) const {
    return read.numel * size_in_bytes(value(read.value).dtype);
  }

  template <class Visit>
  void for_each_pair(Visit&& visit) const {
    for (std::size_t index = 0; index < graph_.values.size(); ++index) {
      const std::vector<std::int32_t>& readers = readers_[index];
      const std::int32_t made_by = value(static_cast<std::int32_t>(index)).made_by;
      const std::int32_t maker = made_by < 0 ? -1 : group_of_[made_by];
      for (std::size_t i = 0; i < readers.size(); ++i) {
        if (maker >= 0) visit(maker, group_of_[readers[i]]);
        for (std::size_t j = i + 1; j < readers.size() && readers[j] - readers[i] <= kFarApart; ++j)
          visit(group_of_[readers[i]], group_of_[readers[j]]);
      }
    }
  }

  bool fuse_once() {
    std::set<std::pair<std::int32_t, std::int32_t>> seen;
    std::vector<Candidate> candidates;
    for_each_pair([&](std::int32_t a, std::int32_t b) {
      if (groups_[a].ops.front() > groups_[b].ops.front()) std::swap(a, b);
      if (a == b || !seen.emplace(a, b).second || !may_fuse(a, b)) return;
      candidates.push_back({.same_kind = groups_[a].kind == groups_[b].kind,
                            .bytes = shared_bytes(a, b),
                            .distance = groups_[b].ops.front() - groups_[a].ops.back(),
                            .first = a,
                            .second = b});
    });
    std::ranges::sort(candidates, {}, &Candidate::key);
    bool fused = false;
    for (const Candidate& candidate : candidates) {
      const std::int32_t a = group_now(candidate.first), b = group_now(candidate.second);
      if (a == b || candidate.bytes <= 0 || !may_fuse(a, b) || shared_bytes(a, b) <= 0) continue;
      if (has_way_around(a, b) || has_way_around(b, a)) continue;
      fuse(a, b);
      fused = true;
    }
    return fused;
  }
  std::int32_t group_now(std::int32_t group) const {
    while (groups_[group].ops.empty()) group = merged_into_[group];
    return group;
  }

  // Whether one loop nest can hold both, and no read between them needs another order.
  bool may_fuse(std::int32_t first, std::int32_t second) const {
    const Group &a = groups_[first], &b = groups_[second];
    if (a.kind == LoopKind::kLibrary || b.kind == LoopKind::kLibrary) return false;
    if (a.ops.size() + b.ops.size() > kMostFused) return false;
    if (!spaces_fit(a, b)) return false;
    const bool reduces = a.kind != LoopKind::kPointwise || b.kind != LoopKind::kPointwise;
    const Group& space = a.kind != LoopKind::kPointwise ? a : b;
    return hands_over_in_order(a, b, reduces ? space : a, reduces) &&
           hands_over_in_order(b, a, reduces ? space : a, reduces);
  }

  static bool spaces_fit(const Group& a, const Group& b) {
    if (a.kind == LoopKind::kPointwise && b.kind == LoopKind::kPointwise) return a.rows == b.rows;
    if (a.kind == b.kind) return a.rows == b.rows && a.columns == b.columns;
    if (a.kind != LoopKind::kPointwise && b.kind != LoopKind::kPointwise) return false;
    const Group &loop = a.kind == LoopKind::kPointwise ? a : b,
                &sums = a.kind == LoopKind::kPointwise ? b : a;
    if (loop.rows == sums.rows) return true;
    return sums.kind == LoopKind::kRows && loop.rows == sums.rows * sums.columns;
  }

  // What `to` reads of `from` must be there when its own turn comes.
  bool hands_over_in_order(const Group& from, const Group& to, const Group& space,
                           bool reduces) const {
    for (const std::int32_t op : to.ops) {
      for (const LoopRead& read : inlined_[op].reads) {
        const LoopValue& made = value(read.value);
        if (made.made_by < 0 || !contains(from.ops, made.made_by)) continue;
        const bool is_element = made.numel == space.rows * (reduces ? space.columns : 1);
        const bool is_row = reduces && made.numel == space.rows;
        if (!read.in_order || read.numel != made.numel || !(is_element || is_row)) return false;
        if (space.kind == LoopKind::kColumns && !is_row) return false;
        if (graph_.ops[made.made_by].kind == LoopKind::kScatter) return false;
        // Sums of columns have many loops and one end: ops after them join, ops before do not.
        if (space.kind == LoopKind::kColumns && from.kind == LoopKind::kPointwise) return false;
      }
    }
    return true;
  }

  // What is read once instead of twice, and what need not be read back.
  std::int64_t shared_bytes(std::int32_t first, std::int32_t second) const {
    const Group &a = groups_[first], &b = groups_[second];
    std::int64_t bytes = 0;
    std::vector<LoopRead> of_a;
    for (const std::int32_t op : a.ops) {
      for (const LoopRead& read : inlined_[op].reads) {
        add_once(of_a, read);
        const std::int32_t made_by = value(read.value).made_by;
        if (made_by >= 0 && contains(b.ops, made_by)) bytes += bytes_of(read);
      }
    }
    for (const std::int32_t op : b.ops) {
      for (const LoopRead& read : inlined_[op].reads) {
        const std::int32_t made_by = value(read.value).made_by;
        if (made_by >= 0 && contains(a.ops, made_by)) bytes += bytes_of(read);
        if (read.in_order && contains(of_a, read)) bytes += bytes_of(read);
      }
    }
    if (a.kind == LoopKind::kColumns && b.kind != LoopKind::kColumns)
      return is_read_by(a, b) ? bytes : 0;
    if (b.kind == LoopKind::kColumns && a.kind != LoopKind::kColumns)
      return is_read_by(b, a) ? bytes : 0;
    return bytes;
  }
  bool is_read_by(const Group& from, const Group& to) const {
    return std::ranges::any_of(to.ops, [&](std::int32_t op) {
      return std::ranges::any_of(inlined_[op].reads, [&](const LoopRead& read) {
        return value(read.value).made_by >= 0 && contains(from.ops, value(read.value).made_by);
      });
    });
  }

  // Whether `to` needs something of `from` through another group.
  bool has_way_around(std::int32_t from, std::int32_t to) const {
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

  void fuse(std::int32_t into, std::int32_t other) {
    Group &a = groups_[into], &b = groups_[other];
    if (a.kind == LoopKind::kPointwise && b.kind != LoopKind::kPointwise) {
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

  // Groups in an order in which they can run, those first whose ops come first.
  std::vector<LoopKernel> write() const {
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
    const auto order = [&](std::int32_t group) { return std::pair(place(groups_[group]), group); };
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const auto group = static_cast<std::int32_t>(i);
      if (!groups_[i].ops.empty() && waits_for[i] == 0) ready.insert(order(group));
    }
    std::vector<LoopKernel> kernels;
    while (!ready.empty()) {
      const std::int32_t group = ready.begin()->second;
      ready.erase(ready.begin());
      kernels.push_back(kernel(group));
      for (const std::int32_t after : next[group]) {
        if (--waits_for[after] == 0) ready.insert(order(after));
      }
    }
    return kernels;
  }
  static std::int32_t place(const Group& group) { return group.ops.front(); }

  LoopKernel kernel(std::int32_t index) const {
    const Group& group = groups_[index];
    LoopKernel made{.kind = group.kind,
                    .ops = group.ops,
                    .names = {},
                    .reads = {},
                    .writes = {},
                    .rows = group.rows,
                    .columns = group.columns};
    std::set<std::string> names;
    for (const std::int32_t op : group.ops) {
      names.insert(inlined_[op].names.begin(), inlined_[op].names.end());
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
    made.names.assign(names.begin(), names.end());
    return made;
  }

  const LoopGraph& graph_;
  const std::vector<bool>& is_output_;
  std::vector<InlinedOp> inlined_;
  std::vector<std::int32_t> group_of_, merged_into_;  // by op; by group
  std::vector<std::vector<std::int32_t>> readers_;    // by value: ops whose kernels read it
  std::vector<Group> groups_;
};

}  // namespace

std::vector<LoopKernel> loop_kernels(const LoopGraph& graph, std::span<const std::int32_t> ops,
                                     const std::vector<bool>& is_output) {
  return LoopScheduler(graph, ops, is_output).schedule();
}

}  // namespace perfmodel
