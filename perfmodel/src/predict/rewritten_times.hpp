#pragma once

#include "perfmodel/detail/predict_options.hpp"
#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Fits `options.kernel_times`, which belong to the ops of `from`, to the graph `to` that rewrites
/// made of it. They stay if the ops do. Else only collectives keep their recorded waits, in
/// `collectives`, which must outlive `options`. Returns a warning if anything is left out. Error:
/// all kernels take times as traced, which belong to the ops of `from`.
Result<std::string> fit_kernel_times(const ExecutionGraph& from, const ExecutionGraph& to,
                                     PredictOptions& options, KernelTimes& collectives);

}  // namespace perfmodel
