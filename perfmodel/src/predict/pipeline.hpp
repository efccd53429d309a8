#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "job_tasks.hpp"
#include "perfmodel/detail/job_prediction.hpp"
#include "perfmodel/detail/predict_options.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"
#include "program/host_facts.hpp"
#include "rank_program.hpp"

namespace perfmodel {

/// A question leaves this to the next one about the same graph in other sizes or on another GPU, so
/// that tasks that only change their times need not be made again.
struct JobMemory {
  std::vector<RankProgram> programs;  ///< the tasks point to them
  std::unique_ptr<JobTasks> tasks;
  /// Which nodes get other shapes between questions (SizePlan::Scratch::reshaped): set before one.
  const std::vector<bool>* reshaped = nullptr;
};

/// The ranks of a job, and their steps on other hosts if a rank asks for them. `facts`,
/// `added_bytes`, `memory`, `last`: see predict_with; the first two for one rank.
Result<JobPrediction> predict_ranks(std::span<const RankInput> ranks, const Gpu& gpu,
                                    const JobOptions& options, const HostFacts* facts = nullptr,
                                    std::optional<double> added_bytes = {}, bool memory = true,
                                    JobMemory* last = nullptr);

/// A rank of a job whose machines differ, or several ranks that are alike.
struct PlacedRank {
  RankInput rank;
  const Gpu* gpu = nullptr;  ///< must outlive the call
  std::int64_t count = 1;    ///< ranks that do the same
  double slowdown = 1;       ///< factor on host work and kernels; collectives keep their time
};

/// A further look at a schedule before it is explained. It leaves durations as they were.
using LookAtSchedule = std::function<Result<void>(std::span<const RankProgram>, JobTasks&)>;

/// The same for ranks on GPUs of their own.
Result<JobPrediction> predict_placed_ranks(std::span<const PlacedRank> ranks,
                                           const JobOptions& options,
                                           const LookAtSchedule& look = {});

/// One rank's program with kernels as slow as the board's power limit makes them.
struct PacedProgram {
  RankProgram rank;
  std::int32_t meetings = 0;  ///< see meet_collectives
};
/// `keep_questions` names the kernels and keeps the question of each.
Result<PacedProgram> paced_program(const RankInput& rank, const Gpu& gpu,
                                   bool keep_questions = false);

}  // namespace perfmodel
