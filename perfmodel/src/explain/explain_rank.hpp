#pragma once

#include <functional>
#include <string>

#include "perfmodel/detail/predict_options.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/result.hpp"
#include "program/host_program.hpp"
#include "program/program_tasks.hpp"

namespace perfmodel {

/// One rank's part of a schedule.
struct ScheduledRank {
  const ExecutionGraph* graph = nullptr;
  const OverheadTable* table = nullptr;
  const PredictOptions* options = nullptr;
  HostProgram* program = nullptr;  ///< its kernels move to the prediction
  const ProgramTasks* tasks = nullptr;
  /// Name of another rank's task, with that rank (empty: a meeting point), and a number that tells
  /// such names apart.
  std::function<std::string(TaskGraph::TaskId)> other_name;
  std::function<std::uint64_t(TaskGraph::TaskId)> other_key;
  /// The name of any rank's op as a number, the same on all of them; empty: there is one rank.
  std::function<std::uint64_t(TaskGraph::TaskId)> op_key;
  bool started = false;  ///< the last pass began at its given time, not after the one before
};

/// Positions of a program's items in the order in which the host first comes to them: the order of
/// Prediction::ops. -1: never.
std::vector<std::int32_t> op_positions(const HostProgram& program);

/// The last pass of a rank as a prediction, without the report of its communication and the points
/// of its path. `begin_us` is the schedule's.
Result<Prediction> explain_rank(const ScheduledRank& rank, const TaskGraph& graph,
                                const Schedule& schedule);

}  // namespace perfmodel
