#pragma once

#include <span>
#include <string>

#include "perfmodel/detail/replay_options.hpp"
#include "perfmodel/detail/replay_result.hpp"
#include "perfmodel/graph/chakra.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Schedules one trace, or the traces of several ranks of one job, again: kernels, copies and host
/// segments keep their measured time; everything else (waiting, blocking, idling) follows from
/// edges. No wait is copied; data loading stays as measured.
///
/// Kernel start = max(end of the stream's previous task + gap, end of its call + latency, awaited
/// work); a blocking or synchronising call ends its own time after what it waits for; host threads
/// hand over to each other; launch i waits for task i - N of its stream (N: depth of the launch
/// queue); a collective moves data once its last rank has started it.
///
/// A device that is idle although work is queued does something that was not recorded. It becomes a
/// task of its own, which keeps its time (`ReplayOptions::scale_unrecorded`).
///
/// With a scale other than 1 the trace is replayed twice, and the scaled replay is compared with
/// the unscaled one.
///
/// Errors: no iterations and no ops, iterations out of range, a scale below 0, one rank given
/// twice, ranks of different jobs, collectives that a rank lacks or that differ in size (see
/// `ReplayOptions::missing_ranks`), graphs with other collectives than their traces, Chakra traces
/// of collectives without recorded sizes, a what-if on a replay that is itself off by more than 10
/// % (see `ReplayOptions::force`).
Result<Replay> replay(std::span<const Trace> ranks, const ReplayOptions& options = {});

/// The same for Chakra traces, one per rank in the order of the ranks: nodes start after their
/// `data_deps`, collectives meet by their order within a process group, a receive waits for its
/// send. `sources` name the files. Kernels are the compute nodes without `is_cpu_op`. Errors: no
/// nodes, collectives that a rank lacks or that differ in kind.
Result<Replay> replay(std::span<const ChakraTrace> ranks, std::span<const std::string> sources,
                      const ReplayOptions& options = {});

/// Whether the files are Chakra traces by name (.et or .et.gz). Error: some are, some are not.
Result<bool> are_chakra_files(std::span<const std::string> files);
/// Reads Chakra traces and replays them; the reader's warnings come first, each after its file.
Result<Replay> replay_chakra_files(std::span<const std::string> files, const ReadOptions& reading,
                                   const ReplayOptions& options);

}  // namespace perfmodel
