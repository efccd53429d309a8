#pragma once

#include "fields/result_field.hpp"
#include "perfmodel/prediction.hpp"

namespace perfmodel {

/// Figures of a step, which a whole job and each of its ranks have.
extern const ResultFields<Prediction> kStepFields;
/// Figures of a job.
extern const ResultFields<Prediction> kJobFields;
extern const ResultFields<Prediction::ParallelCosts> kParallelCostsFields;

extern const ResultFields<PredictedKernel> kPredictedKernelFields;

}  // namespace perfmodel
