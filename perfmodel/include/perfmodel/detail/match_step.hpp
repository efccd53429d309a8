#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "perfmodel/graph/graph_from_trace.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/what_if.hpp"

namespace perfmodel {

/// Finds the scales with which a predicted step takes `measured_us`, to 0.01 %. A host-bound step
/// shows the speed of the host, so only the host's time is scaled. A step whose GPU is busy for
/// nine tenths or more shows nothing about the host, so kernels are scaled. If one scale alone
/// cannot explain the measurement (it would be below 1/30 or above 30), both are used.
///
/// `predict(scales)` predicts the measured step. Errors: a time that is not above 0; a step that no
/// scale explains; as for `predict`.
Result<StepScales> match_step(double measured_us,
                              const std::function<Result<Prediction>(const StepScales&)>& predict);

/// A step that the user measured, without a profiler.
struct TimedStep {
  std::optional<double> us;
  std::string gpu;         ///< GPU that it ran on; empty: the GPU of the question
  std::int64_t batch = 0;  ///< samples in it; 0: the graph's
};

/// Finds the scales with which `program` takes the measured time on its GPU. The host and models
/// come from `target`, the question's GPU. Errors: an unknown GPU, a batch that the graph cannot
/// have, as for `match_step`.
Result<StepScales> match_measured(const TimedStep& measured, const RecordedProgram& program,
                                  const WhatIfTarget& target);

/// "the measured step of 5.100 ms on a100-sxm-80gb says that the host's work takes 0.83 of ..."
std::string measured_sentence(const TimedStep& measured, const StepScales& scales);

}  // namespace perfmodel
