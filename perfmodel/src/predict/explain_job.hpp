#pragma once

#include <span>
#include <string>
#include <vector>

#include "job_tasks.hpp"
#include "memory/graph_memory.hpp"
#include "perfmodel/detail/job_prediction.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// The last pass as a prediction of each rank, and of the job if there are several. The programs'
/// kernels move to the predictions. Checks the invariants of schedule and figures (invariants.hpp).
/// `chakra`: whether to write the job as Chakra files. Errors: broken invariants.
Result<JobPrediction> explain_job(std::span<RankProgram> programs, bool chakra, JobTasks& tasks,
                                  std::vector<std::string> warnings);

/// Reports the memory of one rank, and warns if it does not fit.
void report_memory(const MemoryPlan& plan, const ExecutionGraph& graph, const Gpu& gpu,
                   Prediction& prediction);

}  // namespace perfmodel
