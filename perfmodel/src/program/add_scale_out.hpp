#pragma once

#include "host_program.hpp"
#include "perfmodel/detail/scale_out.hpp"

namespace perfmodel {

/// Turns a program of one rank into the program of a rank among `world` data-parallel ones.
///
/// A graph that reduces gradients itself, as graphs of strategy ddp do by now
/// (data_parallel_graph.hpp), keeps its collectives, among `world` ranks. FSDP: consecutive
/// parameters form units (fsdp_program.hpp); the work of optimizer ops is divided by the number of
/// ranks.
///
/// Errors: a world below 1, no gradients, units without a forward op, FSDP for a graph that reduces
/// gradients.
Result<void> add_scale_out(const ExecutionGraph& graph, const Gpu& gpu, const OverheadTable& table,
                           const ScaleOut& how, bool reduces_gradients, LoweredProgram& lowered);

}  // namespace perfmodel
