#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Rules that turn waiting into edges; each can be switched off to see what it explains. The
/// waiting is taken out of the host's time either way.
struct ReplayRules {
  bool hand_over = true;        ///< host threads wait for each other
  bool blocking_copies = true;  ///< a copy that blocks its call
  bool synchronise = true;      ///< stream, device and event synchronisation, cudaFree and its like
  bool cross_stream = true;     ///< awaited events, recorded or inferred
  bool held_machine = true;  ///< small work that waits for a big kernel of another stream to drain
  bool launch_queue = true;  ///< a launch waits when the queue is full
};

struct ReplayOptions {
  double scale_kernels = 1;     ///< for kernels that are no collectives (and no copies, no sets)
  double scale_host = 1;        ///< for the host's own time, data loading excepted
  double scale_unrecorded = 1;  ///< for device work that the trace does not hold
  bool force = false;  ///< answer what-ifs even if the replay itself is off by more than 10 %
  std::optional<std::pair<std::size_t, std::size_t>> iterations;  ///< reported, [first, last)
  bool missing_ranks = false;  ///< go on without the ranks that are not given
  /// Of each trace, its execution graph: the sizes of collectives that the trace did not record.
  std::span<const ExecutionGraph> graphs;
  ReplayRules rules;
  bool keep_timeline = false, keep_chakra = false;  ///< fill the results of that name
};

}  // namespace perfmodel
