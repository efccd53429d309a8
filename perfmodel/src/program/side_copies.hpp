#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/predictors/detail/lower.hpp"

namespace perfmodel {

/// The memory that copies on other streams than the main one wrote. Whoever reads it on another
/// stream has waited for the copy, in ways that no graph records.
class SideCopies {
 public:
  explicit SideCopies(const ExecutionGraph& graph) : graph_(graph) {}

  /// Notes the target of a copy; returns whether an op may have to wait for it.
  bool note(const LoweredCall& copy);

  /// The same for a copy to the host or back (offload::*), by its node: an op that releases the
  /// copied GPU memory waits for the copy.
  bool note_aside(std::int32_t node, std::int32_t stream);

  /// The nodes of the copies that have to end before an op without calls, which releases their
  /// memory.
  std::vector<std::int32_t> take_released(std::int32_t node);

  /// The nodes of the copies that a call has to wait for; its stream has done so from now on.
  std::vector<std::int32_t> take_awaited(const LoweredCall& reader);

 private:
  struct Copy {
    std::int32_t node = -1;
    std::int32_t stream = 0;
  };
  const ExecutionGraph& graph_;
  std::unordered_map<std::int64_t, Copy> copies_;           // by storage
  std::unordered_map<std::int64_t, std::int32_t> leaving_;  // storage -> node of the copy
};

}  // namespace perfmodel
