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

/// By what the times of a prediction are multiplied so that a step takes what was measured.
struct StepScales {
  double host = 1;    ///< `PredictOptions::host_scale`
  double device = 1;  ///< `PredictOptions::device_scale`
};

/// The scales with which a predicted step takes `measured_us`, to 0.01 %. A host-bound step says
/// how fast the host is: its time is scaled alone. A step in which the GPU is busy for nine tenths
/// and more says nothing of the host: kernels are scaled. Where that one alone cannot explain what
/// was measured (its time would be less than a thirtieth, or more than thirty times as long), both
/// are.
///
/// `predict(scales)` predicts the step that was measured. Errors: a time that is not above 0; those
/// of `predict`; a step that no scale explains.
Result<StepScales> match_step(double measured_us,
                              const std::function<Result<Prediction>(const StepScales&)>& predict);

/// A step that the user measured, without a profiler.
struct TimedStep {
  std::optional<double> us;
  std::string gpu;         ///< that it ran on; empty: the GPU of the question
  std::int64_t batch = 0;  ///< samples in it; 0: the graph's
};

/// With which scales `program` takes on its GPU what was measured; `target` is the question's, with
/// its host and models. Errors: an unknown GPU, a batch that the graph cannot have, those of
/// `match_step`.
Result<StepScales> match_measured(const TimedStep& measured, const RecordedProgram& program,
                                  const WhatIfTarget& target);

/// "the measured step of 5.100 ms on a100-sxm-80gb says that the host's work takes 0.83 of ..."
std::string measured_sentence(const TimedStep& measured, const StepScales& scales);

}  // namespace perfmodel
