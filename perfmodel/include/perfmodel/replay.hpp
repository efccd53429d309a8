#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/detail/critical_path.hpp"
#include "perfmodel/detail/job_timeline.hpp"
#include "perfmodel/detail/rank_report.hpp"
#include "perfmodel/graph/chakra.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/result.hpp"

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

/// What a trace takes when it is scheduled again from its own durations. Times in microseconds.
struct Replay {
  struct Iteration {
    std::string name;
    double measured_us = 0;  ///< host wall; 0: the file has no times of it
    double unscaled_us = 0;  ///< replayed with every scale at 1
    double replayed_us = 0;
    double measured_device_period_us = 0;  ///< end of its device work since that of the last one
    double unscaled_device_period_us = 0;  ///< these three are 0 for the first iteration
    double replayed_device_period_us = 0;
    double data_loading_us = 0;       ///< as measured, in all
    double unrecorded_device_us = 0;  ///< for which nothing that the trace holds kept the device
    bool queue_filling = false;  ///< the launch queue was not full yet, as it is from some step on

    /// Of the replay itself, as a fraction; 0 where nothing was measured.
    double error() const { return measured_us > 0 ? unscaled_us / measured_us - 1 : 0; }
    /// What the scales change, as a fraction.
    double change() const { return unscaled_us > 0 ? replayed_us / unscaled_us - 1 : 0; }
  };
  /// Over the iterations of all ranks, but for those with `queue_filling`; periods 0: none.
  struct Medians {
    double measured_us = 0, unscaled_us = 0, replayed_us = 0;
    double measured_device_period_us = 0, replayed_device_period_us = 0;
    std::size_t iterations = 0, left_out = 0;
  };
  struct Rank {
    std::string source;
    std::int64_t rank = -1;
    double clock_offset_us = 0;  ///< of its clock against the first trace's
    std::vector<Iteration> iterations;
    double mean_abs_error = 0, worst_abs_error = 0;  ///< of its iterations' error()
    CriticalPath critical_path;                      ///< of its last reported iteration
    RankReport communication;
  };
  std::vector<Rank> ranks;
  std::optional<JobReport> job;     ///< with several ranks
  double mean_abs_error = 0;        ///< over the iterations of all ranks
  double unrecorded_device_us = 0;  ///< mean per iteration
  Medians median;
  std::size_t tasks = 0, edges = 0, inferred_edges = 0;
  std::size_t collectives_matched = 0, collectives_unmatched = 0;
  std::optional<JobTimeline> timeline;  ///< with the critical path of the slowest rank
  std::vector<ChakraTrace> chakra;      ///< one per rank
  std::vector<std::string> warnings;
};

/// Schedules one trace, or the traces of several ranks of one job, again: kernels, copies and host
/// segments take the time they were measured with, everything else (waiting, blocking, idling)
/// follows from edges. No wait is copied; data loading stays as measured.
///
/// Kernel start = max(end of the stream's previous task + gap, end of its call + latency, awaited
/// work); a blocking or synchronising call ends its own time after what it waits for; host threads
/// hand over to each other; launch i waits for task i - N of its stream (N: depth of the launch
/// queue); a collective moves data once its last rank has started it.
///
/// A device that stands idle although work is queued does something that was not recorded: a task
/// of its own, which keeps its time (`ReplayOptions::scale_unrecorded`).
///
/// With a scale that is not 1 the trace is replayed twice, and the scaled replay is compared with
/// the one as recorded.
///
/// Errors: no iterations and no ops, iterations out of range, a scale below 0, one rank given
/// twice, ranks of different jobs, collectives that a rank lacks or that differ in size (see
/// `ReplayOptions::missing_ranks`), graphs with other collectives than their traces, Chakra traces
/// of collectives whose sizes nobody recorded, a what-if on a replay that is off by more than 10 %
/// itself (see `ReplayOptions::force`).
Result<Replay> replay(std::span<const Trace> ranks, const ReplayOptions& options = {});

/// The same for Chakra traces, one per rank in the order of the ranks: nodes start after their
/// `data_deps`, collectives meet by their order within a process group, a receive waits for its
/// send. `sources` name the files. Kernels are compute nodes that are no `is_cpu_op`. Errors: no
/// nodes, collectives that a rank lacks or of which the kinds differ.
Result<Replay> replay(std::span<const ChakraTrace> ranks, std::span<const std::string> sources,
                      const ReplayOptions& options = {});

}  // namespace perfmodel
