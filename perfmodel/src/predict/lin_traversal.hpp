#pragma once

#include "perfmodel/detail/predict_options.hpp"
#include "perfmodel/prediction.hpp"

namespace perfmodel {

/// Prediction as in the published code of Lin et al. (HiPC 2022): one CPU clock, a compute and a
/// communication stream, one value per overhead and op name, 5 us added to every kernel, waits only
/// after `aten::to` and at collectives' readers. Kept as the baseline that it is.
Result<Prediction> lin_traversal(const ExecutionGraph& graph, const Gpu& gpu,
                                 const OverheadTable& table, const PredictOptions& options);

}  // namespace perfmodel
