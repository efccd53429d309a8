#pragma once

#include "host_program.hpp"

namespace perfmodel {

/// Puts the collectives of a data-parallel job into a program of one rank.
///
/// DDP: gradients in the order of their AccumulateGrad ops fill buckets; each bucket's all-reduce
/// is launched on a stream of its own when its last gradient is there, and the first kernel behind
/// the last gradient waits for all of them. FSDP: consecutive parameters form units; a unit's
/// gather is launched before its first forward op and, but for the last unit, one unit ahead of its
/// backward ops, its reduce-scatter behind its last gradient; the work of optimizer ops is divided
/// by the number of ranks. A graph with all-reduces or reduce-scatters keeps its collectives,
/// priced for `world`.
///
/// Errors: a world below 1, no gradients, units without a forward op, FSDP for a graph that has
/// collectives.
Result<ScaledOut> add_scale_out(const ExecutionGraph& graph, const Gpu& gpu,
                                const OverheadTable& table, const PredictOptions& options,
                                HostProgram& program);

}  // namespace perfmodel
