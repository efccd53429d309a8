#pragma once

#include <optional>

#include "graph_memory.hpp"
#include "perfmodel/detail/predicted_memory.hpp"
#include "perfmodel/detail/scale_out.hpp"

namespace perfmodel {

/// Memory of one rank (`gpu` null: without a context). `graph` is the plan's but for sizes;
/// `scaled`: how it was scaled out, if it was. FSDP divides what stays and what the optimizer makes
/// by the ranks, unless the graph reduces its gradients itself, and gathers units of parameters.
PredictedMemory step_memory(const MemoryPlan& plan, const ExecutionGraph& graph,
                            const std::optional<ScaledOut>& scaled, const Gpu* gpu,
                            bool expandable_segments = false);

/// Whether a step of one rank alone fits into `gpu` with these bytes of each storage: what
/// `step_memory` says of a graph of these sizes, without that graph.
bool step_fits(const MemoryPlan& plan, const std::vector<std::int64_t>& bytes, const Gpu& gpu,
               bool expandable_segments = false);

/// Bytes of each storage of one rank of so many.
std::vector<std::int64_t> rank_bytes(const MemoryPlan& plan, const ExecutionGraph& graph,
                                     const std::optional<ScaledOut>& scaled);

}  // namespace perfmodel
