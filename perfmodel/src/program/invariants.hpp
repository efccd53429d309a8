#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "perfmodel/detail/schedule.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/result.hpp"
#include "program_tasks.hpp"

/// Conditions that hold for every prediction and every replay, whatever the question. If one fails,
/// the library is wrong and not its input: the error's message begins with "bug: " and names the
/// op.
namespace perfmodel {

/// Name of a task in messages: "aten::mm" on stream 0 of rank 1.
using TaskName = std::function<std::string(TaskGraph::TaskId)>;

/// An error that tells of a defect of ours.
Unexpected bug(std::string_view what);

struct CheckedTasks {
  TaskGraph::TaskId first = 0;  ///< earlier tasks are left out
  std::size_t first_edge = 0;   ///< and so are earlier edges
  double overlap_us = 0;        ///< by how much tasks of one lane may overlap: rounded stamps do
};

/// All times are numbers; no task starts before the previous one of its lane has ended, nor before
/// an edge allows it. Inferred edges may have been dropped: that many may be broken.
Result<void> check_schedule(const TaskGraph& graph, const Schedule& schedule, const TaskName& name,
                            const CheckedTasks& tasks = {});

/// No lane from `first_lane` on, up to `end_lane`, works longer than from the first start on these
/// lanes to the last end. `overlap_us`: as above.
Result<void> check_spans(const TaskGraph& graph, const Schedule& schedule, std::int32_t first_lane,
                         std::int32_t end_lane, const TaskName& name, double overlap_us = 0);

/// One rank's last pass in a schedule.
struct CheckedRank {
  const ExecutionGraph* graph = nullptr;
  const HostProgram* program = nullptr;
  const ProgramTasks* tasks = nullptr;
  const TaskGraph* task_graph = nullptr;
  const Schedule* schedule = nullptr;
  TaskName name;
};

/// After a collective, or after a copy on another stream than the main one, the first kernel that
/// reads its output starts after its end. Readers are found by the graph's tensors, not by the
/// schedule's edges; readers in the next pass are ignored.
Result<void> check_readers(const CheckedRank& rank);

/// In steady state no stream has more work in a step than the step takes, and the device is active
/// no longer than that.
Result<void> check_pace(const CheckedRank& rank, const Prediction& prediction);

/// Times are numbers and not negative. `who`: start of the error's message ("rank 1: ").
Result<void> check_times(const Prediction& prediction, std::string_view who = {});

/// The host's terms add up to its busy time, and that with its waiting to the step; the kernels'
/// terms to the sum of kernels. `latest_us`: the schedule's last end, for rounding.
Result<void> check_sums(const Prediction& prediction, double latest_us, std::string_view who = {});

}  // namespace perfmodel
