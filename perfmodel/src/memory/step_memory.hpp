#pragma once

#include <optional>

#include "graph_memory.hpp"
#include "perfmodel/detail/predicted_memory.hpp"
#include "perfmodel/detail/scale_out.hpp"
#include "perfmodel/memory.hpp"

namespace perfmodel {

/// The part of a step's memory on one of several data-parallel ranks.
struct RankShare {
  ZeroSharding zero;          ///< one rank: all of it
  double gathered_bytes = 0;  ///< parameters and gradients that are whole for a while
};
/// As a prediction scaled the graph out, if it did: FSDP divides the tensors that stay and those
/// that the optimizer makes by the ranks, unless the graph reduces its gradients itself, and
/// gathers units.
RankShare rank_share(const std::optional<ScaledOut>& scaled);
/// From the graph alone: units of stage 3 are weights in the order of their first use, as
/// `fsdp_units` makes them of gradients; stage 2 reduces gradients in buckets of 5e8 numbers, like
/// DeepSpeed (`reduce_bucket_size`).
RankShare rank_share(const ZeroSharding& zero, const MemoryPlan& plan, const ExecutionGraph& graph);

/// Memory of one rank (`gpu` null: without a context). `graph` may differ from the plan's in sizes.
PredictedMemory step_memory(const MemoryPlan& plan, const ExecutionGraph& graph,
                            const RankShare& share, const Gpu* gpu,
                            bool expandable_segments = false);

/// Whether a step of one rank fits into `gpu` with these bytes of each of its storages: the answer
/// of `step_memory` for a graph of these sizes, without that graph.
bool step_fits(const MemoryPlan& plan, const std::vector<std::int64_t>& bytes,
               const RankShare& share, const Gpu& gpu, bool expandable_segments = false);

/// Bytes of each storage of one rank.
std::vector<std::int64_t> rank_bytes(const MemoryPlan& plan, const ExecutionGraph& graph,
                                     const RankShare& share);

}  // namespace perfmodel
