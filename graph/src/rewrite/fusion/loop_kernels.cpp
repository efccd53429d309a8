#include "loop_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/contains.hpp"
#include "loop_groups.hpp"

namespace perfmodel {
namespace {

// torch/_inductor/config.py: max_fusion_size; scheduler.py: nodes further apart are not fused just
// because they read the same.
constexpr std::size_t kMostFused = 64;
constexpr std::int32_t kFarApart = 64;

// Whether a Triton template computes the product, with enough tiles for an H100, as Inductor counts
// its multiprocessors elsewhere: with fewer the library splits the sums, which templates do not.
bool has_template(const LoopGraph& graph, std::int32_t index) {
  constexpr std::int64_t kMultiprocessors = 132, kTile = 64 * 64;
  const LoopOp& op = graph.ops[index];
  const bool is_product =
      op.name == "mm" || op.name == "addmm" || op.name == "bmm" || op.name == "baddbmm";
  return is_product && op.writes.size() == 1 &&
         graph.values[op.writes.front()].numel >= kMultiprocessors * kTile;
}

class LoopScheduler : LoopGroups {
 public:
  using LoopGroups::LoopGroups;

  std::vector<LoopKernel> schedule(Epilogues epilogues) {
    while (fuse_once()) {
    }
    if (epilogues == Epilogues::kInProducts) join_epilogues();
    return kernels();
  }

 private:
  struct Candidate {
    bool same_kind = false;
    std::int64_t bytes = 0;
    std::int32_t distance = 0, first = 0, second = 0;  // groups
    auto key() const { return std::tuple(!same_kind, -bytes, distance, first, second); }
  };

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

  // The part of `from` that `to` reads must be there when its own turn comes.
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

  // Bytes that are read once instead of twice, or need not be read back.
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

  // Each product with the loops on its result that save most bytes.
  void join_epilogues() {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const auto product = static_cast<std::int32_t>(i);
      if (groups_[i].kind != LoopKind::kLibrary || !has_template(graph_, groups_[i].ops.front()))
        continue;
      std::int32_t best = -1;
      for (std::size_t j = 0; j < groups_.size(); ++j) {
        const auto loops = static_cast<std::int32_t>(j);
        if (!can_be_epilogue(product, loops) || has_way_around(product, loops)) continue;
        if (best < 0 || shared_bytes(product, loops) > shared_bytes(product, best)) best = loops;
      }
      if (best >= 0) join(product, best);
    }
  }

  bool can_be_epilogue(std::int32_t product, std::int32_t loops) const {
    const Group &from = groups_[product], &to = groups_[loops];
    const bool is_free = to.kind == LoopKind::kPointwise && to.product < 0 && !to.ops.empty();
    const auto scatters = [&](std::int32_t op) {
      return graph_.ops[op].kind == LoopKind::kScatter;
    };
    return is_free && to.rows == value(graph_.ops[from.ops.front()].writes.front()).numel &&
           std::ranges::none_of(to.ops, scatters) && is_read_by(from, to) &&
           hands_over_in_order(from, to, to, false);
  }

  void join(std::int32_t product, std::int32_t loops) {
    const std::int32_t op = groups_[product].ops.front();
    fuse(loops, product);
    groups_[loops].product = op;
  }
};

}  // namespace

std::string names_of_ops(const LoopGraph& graph, const LoopKernel& kernel) {
  std::set<std::string_view> names;
  for (const std::int32_t op : kernel.computed) names.insert(graph.ops[op].name);
  return fmt::format("{}", fmt::join(names, "_"));
}

std::vector<LoopKernel> loop_kernels(const LoopGraph& graph, std::span<const std::int32_t> ops,
                                     const std::vector<bool>& is_output, Epilogues epilogues) {
  return LoopScheduler(graph, ops, is_output).schedule(epilogues);
}

}  // namespace perfmodel
