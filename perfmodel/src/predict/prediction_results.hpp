#pragma once

#include "fields/result_field.hpp"
#include "perfmodel/prediction.hpp"

namespace perfmodel {

/// Figures of a step, which a whole job and each of its ranks have. JSON has all; one with a title
/// is in every text and in the page of `report`, too.
extern const ResultFields<Prediction> kStepFields;
/// Calls `show` with the title and the text of each figure that has a title.
template <class Show>
void each_titled_figure(const Prediction& prediction, Show show) {
  for (const auto& field : kStepFields) {
    if (!field.title.empty()) show(field.title, field.text(prediction));
  }
}
/// Figures of a job.
extern const ResultFields<Prediction> kJobFields;
extern const ResultFields<Prediction::ParallelCosts> kParallelCostsFields;

extern const ResultFields<PredictedKernel> kPredictedKernelFields;

}  // namespace perfmodel
