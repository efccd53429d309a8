#pragma once

#include "host_facts.hpp"
#include "host_program.hpp"
#include "perfmodel/detail/predict_options.hpp"

namespace perfmodel {

/// Writes down the work of a graph's host and the work that it gives to the device. `facts`: of the
/// graph, or of one that only differs in sizes, and of this table. `name_kernels`: false leaves the
/// names of kernels that are no collectives empty. Errors: cancelled.
Result<LoweredProgram> lower_program(const ExecutionGraph& graph, const Gpu& gpu,
                                     const OverheadTable& table, const HostFacts& facts,
                                     const PredictOptions& options, bool name_kernels);

}  // namespace perfmodel
