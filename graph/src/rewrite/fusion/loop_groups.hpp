#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "loop_inlining.hpp"
#include "loop_kernel.hpp"

namespace perfmodel {

/// The ops of one pass that are in memory, as groups that run together; at first each is its own.
class LoopGroups {
 public:
  LoopGroups(const LoopGraph& graph, std::span<const std::int32_t> ops,
             const std::vector<bool>& is_output);

  /// The groups as kernels, in an order in which they can run, those first whose ops come first.
  std::vector<LoopKernel> kernels() const;

 protected:
  struct Group {
    LoopKind kind = LoopKind::kPointwise;
    std::vector<std::int32_t> ops;  // sorted; none: the group went into another
    std::int64_t rows = 1, columns = 1;
    std::int32_t product = -1;  // see LoopKernel
  };

  const LoopValue& value(std::int32_t index) const { return graph_.values[index]; }
  /// Where a group is after it went into another.
  std::int32_t group_now(std::int32_t group) const;
  /// Whether `to` needs something of `from` through another group.
  bool has_way_around(std::int32_t from, std::int32_t to) const;
  /// Puts the second group into the first.
  void fuse(std::int32_t into, std::int32_t other);

  const LoopGraph& graph_;
  const std::vector<bool>& is_output_;
  std::vector<InlinedOp> inlined_;                    // by op
  std::vector<std::int32_t> group_of_, merged_into_;  // by op; by group
  std::vector<std::vector<std::int32_t>> readers_;    // by value: ops whose kernels read it
  std::vector<Group> groups_;

 private:
  LoopKernel kernel(std::int32_t index) const;
  std::int32_t turn(std::int32_t group) const;
};

}  // namespace perfmodel
