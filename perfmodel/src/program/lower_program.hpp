#pragma once

#include "host_facts.hpp"
#include "host_program.hpp"
#include "perfmodel/detail/predict_options.hpp"

namespace perfmodel {

/// Writes down the work of a graph's host and the work that it gives to the device. `facts`: of the
/// graph, or of one that only differs in sizes, and of this table. `name_kernels`: false leaves the
/// names of kernels that are no collectives empty. `write_notes`: for lower_again. Errors:
/// cancelled.
Result<LoweredProgram> lower_program(const ExecutionGraph& graph, const Gpu& gpu,
                                     const OverheadTable& table, const HostFacts& facts,
                                     const PredictOptions& options, bool name_kernels,
                                     bool write_notes = false);

/// Gives the kernels of a lowered program their work in a graph that differs from the last one in
/// sizes only, with the same GPU, table, facts and options except the models. Prices do not change
/// yet. False, and nothing is changed: the program would be another one. The program needs `notes`.
/// `reshaped`: see Lowering::repeat.
bool lower_again(const ExecutionGraph& graph, const Gpu& gpu, const OverheadTable& table,
                 const HostFacts& facts, const std::vector<bool>* reshaped, LoweredProgram& last);

}  // namespace perfmodel
