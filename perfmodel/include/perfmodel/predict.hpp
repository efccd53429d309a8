#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "perfmodel/detail/job_prediction.hpp"
#include "perfmodel/detail/predict_options.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/predictors/detail/lower.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Predicts one training step of `graph` on `gpu` with the host overheads of `table`.
///
/// The host runs the top-level ops in id order (the autograd thread works while the main thread
/// waits); kernels start when their stream is free, their call is over, and the work that they wait
/// for has ended; a synchronising or blocking call waits for its stream; a `record_param_comms`
/// wait holds the next kernel until the collective with its sequence number has ended. The steps
/// are repeated until two successive periods agree within 0.1 %.
///
/// A table of method `lin` is traversed as in the published code of Lin et al. (HiPC 2022) instead.
///
/// Errors: a graph recorded without a GPU (see rewrites/retarget.hpp), a duration that is not a
/// number or above 1e15 us, no op.
Result<Prediction> predict(const ExecutionGraph& graph, const Gpu& gpu, const OverheadTable& table,
                           const PredictOptions& options = {});

/// Predicts the ranks of a job together: each collective moves data once its last rank has started
/// it. Collectives are matched by process group, sequence number and kind, or by their order where
/// numbers are not recorded. Missing ranks are assumed to arrive no later than the given ones.
///
/// With `rank_start_us`, each rank begins one step after the steady state at its given time, and
/// that step is reported. Errors: as for `predict`; more or fewer starts than ranks; collectives
/// that a rank lacks or that differ in kind or size.
Result<JobPrediction> predict_job(std::span<const RankInput> ranks, const Gpu& gpu,
                                  const JobOptions& options = {});

/// The host's own time in a step that `predict` predicts, microseconds (Prediction::cpu_us). No
/// kernel is priced for it. `table` has method `context`. Errors: as for `predict`.
Result<double> predict_host_us(const ExecutionGraph& graph, const Gpu& gpu,
                               const OverheadTable& table);

/// Device calls (launches, copies, sets) that each top-level op makes when lowered, in the order of
/// `top_level_ops(graph)`; for comparison with a trace.
std::vector<std::size_t> predicted_launches(const ExecutionGraph& graph, const Gpu& gpu,
                                            const LaunchTemplates* templates, TemplateUse use);

}  // namespace perfmodel
