#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "host_facts.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/overheads.hpp"

namespace perfmodel {

/// Host time of the code that torch.compile writes: it launches the kernels of a region from one
/// Python function, so that the terms of eager ops do not hold in it.
class CompiledCode {
 public:
  CompiledCode(const ExecutionGraph& graph, const OverheadTable& table);

  /// Whether an item is a region of compiled code or a captured graph. False, too, if the table
  /// knows it by the ops below it or by its name.
  bool runs(const HostFacts::Item& item) const;

  /// Guards and wrappers before a region's first call; checks and results after its last one.
  OverheadTerm::Found before() const { return found(kBefore); }
  OverheadTerm::Found after() const { return found(kAfter); }

  /// Between two calls of a region. Nothing: one launch of a captured graph makes both.
  std::optional<OverheadTerm::Found> between(std::int32_t node, std::int32_t next) const;

  /// The node of the captured graph around a node; -1: none.
  std::int32_t replay_around(std::int32_t node) const;

 private:
  /// Multiples of a kernel's launch, a measure of the host's speed. Read off
  /// data/measurements/h100-sxm-80gb/gpt2-small-512.compile-b4: as its profiler recorded them, but
  /// brought to the 18.8 ms that the host takes for a step without a profiler. The model has 148
  /// parameters; guards of larger ones take longer.
  static constexpr double kBefore = 63, kAfter = 37;
  static constexpr double kTritonKernel = 3.3;  ///< buffers, then Triton's launcher
  static constexpr double kLibraryOp = 3.9;     ///< extern_kernels.mm(..., out=...), attention
  static constexpr double kSameOp = 0.7;        ///< several launches of one library op

  OverheadTerm::Found found(double launches) const {
    return {.us = launches * launch_us_, .level = KeyLevel::kKind};
  }

  const ExecutionGraph& graph_;
  double launch_us_ = 0;
  std::vector<bool> is_region_, is_replay_;  ///< by name
  bool has_replays_ = false;
};

}  // namespace perfmodel
