#pragma once

#include <functional>

#include "perfmodel/prediction.hpp"
#include "perfmodel/result.hpp"

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

}  // namespace perfmodel
