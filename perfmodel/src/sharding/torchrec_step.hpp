#pragma once

#include "perfmodel/graph/detail/launching.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/prediction.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/batch_model.hpp"

namespace perfmodel::sharding {

/// The work of the study's step that its plans' loads do not count, from predictions of TorchRec
/// graphs: one of the whole job with every table on one rank, and small ones that differ in one
/// kind of exchange or in the number of its tables. Lookups count as far as they take longer than
/// `lookup_time()` says.
///
/// Graphs have dot products of vectors of one width. A dense part of another kind keeps the prices
/// of dense_time(), and its host launches as many layers (two for each cross layer). With one GPU
/// there are no exchanges to learn from: it has the work of two without them.
///
/// Errors are those that build_torchrec_dlrm(), predict() and BatchModel::make() return.
Result<StepNeeds> torchrec_step(const ShardingStudy& study, const Gpu& gpu,
                                const Topology& topology, const BatchOptions& options,
                                const OverheadTable& overheads, Launching launching);

/// The same for several ways to launch, whose graphs are built once.
Result<std::vector<StepNeeds>> torchrec_steps(const ShardingStudy& study, const Gpu& gpu,
                                              const Topology& topology, const BatchOptions& options,
                                              const OverheadTable& overheads,
                                              std::span<const Launching> launchings);

/// The parts of a predicted step of build_torchrec_dlrm(), collectives and streams other than the
/// main one left out. The prediction has its calls; `kernel_gap_us` passes between two kernels.
BatchWork torchrec_step_parts(const Prediction& prediction, double kernel_gap_us);

}  // namespace perfmodel::sharding
