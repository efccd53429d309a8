#pragma once

#include <span>
#include <vector>

#include "job_tasks.hpp"
#include "perfmodel/prediction.hpp"

namespace perfmodel {

/// Which op and kernel each task of the last pass belongs to; rank -1: none that is reported.
using PathPoints = std::vector<Prediction::PathPoint>;
PathPoints note_path_points(std::span<const RankProgram> programs, const JobTasks& tasks);

/// Points on the critical path of a rank. `prediction`: the rank's prediction so far.
PathPoints path_points(const RankProgram& rank, std::size_t r, const Prediction& prediction,
                       const JobTasks& tasks, const PathPoints& of_tasks);

}  // namespace perfmodel
