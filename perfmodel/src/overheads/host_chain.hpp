#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/call_waits.hpp"
#include "perfmodel/detail/overhead_table.hpp"

namespace perfmodel {

/// A call that matters to the schedule: a launch or a synchronise.
struct ChainCall {
  std::int32_t event = -1;  ///< into Trace::host
  std::int32_t node = -1;   ///< innermost graph node around it, -1 without a graph
};

/// One top-level op of a recorded run.
struct ChainOp {
  std::int32_t node = -1;                          ///< graph node, -1 without a graph
  std::int32_t event = -1;                         ///< into Trace::host
  std::uint64_t name = 0, subtree = 0, label = 0;  ///< hashes
  std::int32_t label_item = -1;   ///< node or event of the innermost label around the op
  std::int32_t phase_event = -1;  ///< host event of the outermost label that is no iteration mark
  bool walks_list = false;
  double tensors = 0;  ///< length of the list that it walks over, if a graph tells
  std::vector<ChainCall> calls;
};

/// A stretch of recorded ops in start order over all threads. The host is one serial chain: the
/// autograd thread works while the main thread waits for it.
struct HostChain {
  std::vector<ChainOp> ops;
  std::vector<ChainCall> loose_calls;  ///< launches and synchronises outside every top-level op
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int32_t node_begin = 0, node_end = 0;  ///< nodes of the graph's step, if there is a graph
  /// Time between the last op and the end of the step plus from its start to the first op, for a
  /// chain that is alone between step marks; none if the next chain follows directly.
  std::optional<std::int64_t> border_gap_ns;
  bool ends_window = false;  ///< steps that were not recorded follow: its border ends with its mark
};

/// Chains of a trace, one per occurrence of the graph (or one per iteration without a graph).
/// `window`: iterations [first, last) of the trace to use.
Result<std::vector<HostChain>> host_chains(
    const OverheadSource& source, const std::optional<std::pair<std::size_t, std::size_t>>& window,
    GraphLink* link_used);

/// Whether the optimizer made its state in this step, as the first one does: one `zeros_like` per
/// tensor of state.
bool makes_optimizer_state(const HostChain& chain, const OverheadSource& source);

/// The label right around a top-level op, labels of checkpoints aside; -1: none.
std::int32_t label_around(const ExecutionGraph& graph, std::int32_t node);

}  // namespace perfmodel
