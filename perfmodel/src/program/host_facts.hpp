#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "awaited_collectives.hpp"
#include "compiled_code.hpp"
#include "host_instruction.hpp"
#include "memory/graph_memory.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Facts about the host's work in a graph and an overhead table, independent of the sizes of
/// tensors: the same for all graphs that only differ in sizes, and for all GPUs.
struct HostFacts {
  /// A top-level op, or a label with calls of its own, in program order.
  struct Item {
    std::int32_t node = -1;     ///< for calls of a label: the last node before them
    std::int32_t subject = -1;  ///< the op's node or the label's
    std::int32_t thread = 0, phase = 0, iteration = 0;
    bool is_label = false;
    bool has_comm_records = false;                  ///< in it or below it
    std::uint64_t name = 0, kind = 0, subtree = 0;  ///< keys
    double tensors = 0;                             ///< see list_length
    OverheadTerm::Found gap, t2, t3, tx;
    std::uint32_t gap_begin = 0, gap_count = 0;  ///< into `gaps`
    std::vector<LoweredCall> calls;              ///< calls of a label
  };

  LoweringFacts lowering;
  /// The table was learned from this program, or from one with the same ops: three of four gaps
  /// between ops are known by their neighbours, or 95 % of the ops with all ops below them. Tables
  /// without contexts are trusted.
  bool own_program = false;
  LoweringStats label_stats;
  std::vector<GraphIteration> steps;
  std::vector<Item> items;
  std::vector<HostWork> gaps;             ///< T1 before the items, divided between phases
  std::vector<Prediction::Phase> phases;  ///< labels
  std::vector<AwaitedCollective> awaited;
  bool reduces_gradients = false;  ///< this and the next: see data_parallel_graph.hpp
  std::size_t fused_updates = 0;
  std::size_t silent_collectives = 0;  ///< see silent_collectives()
  std::int32_t rest_phase = 0;
  bool has_given_times = false;              ///< some node holds the time of its kernels
  std::shared_ptr<const MemoryPlan> memory;  ///< empty for a graph from a trace
  CompiledNames compiled;
};

/// `window`: iterations [first, last) of the graph to use. The facts point into the table.
/// Errors: no ops, iterations out of range.
Result<HostFacts> make_host_facts(const ExecutionGraph& graph, const OverheadTable& table,
                                  const std::optional<std::pair<std::size_t, std::size_t>>& window);

/// The part that gives the host's own time: items and their prices, without facts about
/// collectives, updates and memory. Errors: the same.
Result<HostFacts> make_host_times(const ExecutionGraph& graph, const OverheadTable& table,
                                  const std::optional<std::pair<std::size_t, std::size_t>>& window);

}  // namespace perfmodel
