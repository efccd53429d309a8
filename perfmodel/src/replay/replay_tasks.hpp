#pragma once

#include <cstdint>
#include <vector>

#include "core/call_waits.hpp"
#include "perfmodel/detail/replay_options.hpp"
#include "perfmodel/detail/schedule.hpp"
#include "perfmodel/graph/detail/trace_ops.hpp"
#include "perfmodel/graph/trace.hpp"
#include "record/device_starts.hpp"

namespace perfmodel {

/// Tasks of one trace in a task graph: host segments and device work as measured, every wait an
/// edge. Tags: `op` is an index into Trace::host (host tasks: the innermost op or annotation around
/// the segment, or -1) or into Trace::gpu (device tasks); `term` a Term.
struct ReplayTasks {
  std::int32_t first_lane = 0, device_lane = 0, end_lane = 0;  ///< host lanes, then device lanes

  /// Per host event: the task whose end is the event's start and end. -1: thread left out.
  std::vector<TaskGraph::TaskId> begins, ends;
  /// Per GPU event: its task; of a collective that meets others, `arrivals` is the task that ends
  /// when the rank is there, and `device` the transfer (duration and edges left to the caller).
  std::vector<TaskGraph::TaskId> device, arrivals;
  /// Per GPU event: the unrecorded work before it, or it itself.
  std::vector<TaskGraph::TaskId> entries;
  std::vector<TaskGraph::TaskId> data_loading;  ///< host tasks inside the data loader

  std::size_t hand_overs = 0, blocking_copies = 0, synchronisations = 0, event_waits = 0;
  std::size_t inferred_waits = 0, held_tasks = 0, without_launch = 0, graph_tasks = 0;
  std::vector<UnrecordedWork> unrecorded;  ///< each a task of its own, term kUnrecorded
  /// Launches that wait for room in the queue: host task, work (into Trace::gpu) that makes room.
  std::vector<std::pair<TaskGraph::TaskId, std::int32_t>> queued_launches;
  std::size_t queue_depth = 0;      ///< launches that the device accepts ahead of its work
  bool queue_depth_fitted = false;  ///< found in the trace, not assumed
};

/// Adds the tasks of one trace. `start_us`: time of the trace's stamp 0 on the common clock. Lanes
/// are numbered from `first_lane` on. `meets`: per GPU event, whether it is a collective that meets
/// other ranks' collectives; empty: none does.
ReplayTasks add_replay_tasks(const Trace& trace, const ReplayOptions& options, double start_us,
                             std::int32_t first_lane, const std::vector<bool>& meets,
                             TaskGraph& graph);

/// "The data loader waits for its workers": their time cannot be derived from this process.
bool is_data_loading(std::string_view annotation);

}  // namespace perfmodel
