#pragma once

#include "host_program.hpp"

namespace perfmodel {

/// Makes a program of one rank that of a rank among `world` data-parallel ones.
///
/// A graph that reduces gradients itself, as graphs of strategy ddp do by now
/// (data_parallel_graph.hpp), keeps its collectives, priced for `world`. FSDP: consecutive
/// parameters form units; a unit's gather is launched before its first forward op and, but for the
/// last unit, one unit ahead of its backward ops, its reduce-scatter behind its last gradient; the
/// work of optimizer ops is divided by the number of ranks.
///
/// Errors: a world below 1, no gradients, units without a forward op, FSDP for a graph that reduces
/// gradients.
Result<ScaledOut> add_scale_out(const ExecutionGraph& graph, const Gpu& gpu,
                                const OverheadTable& table, const PredictOptions& options,
                                bool reduces_gradients, HostProgram& program);

}  // namespace perfmodel
