#pragma once

#include <span>
#include <vector>

#include "job_tasks.hpp"
#include "perfmodel/result.hpp"
#include "rank_program.hpp"

namespace perfmodel {

struct StepRange {
  double low_us = 0, high_us = 0;
};

/// Per rank, from four more schedules of the same tasks: kernels of all ranks as short or as long
/// as the range of their sum says (`SummedRange`), and hosts of `kOtherHosts`, or of `kSameHosts`
/// where the overheads know the program's own launches. Both are independent:
///
///   high = t + sqrt((t_long_kernels - t)^2 + (t_slow_host - t)^2)
///
/// `steps_us` are the steps as predicted.
Result<std::vector<StepRange>> step_ranges(std::span<const double> steps_us,
                                           std::span<const RankProgram> programs,
                                           const JobTasks& tasks);

}  // namespace perfmodel
