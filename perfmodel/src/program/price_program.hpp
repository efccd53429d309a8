#pragma once

#include "host_program.hpp"
#include "perfmodel/detail/predict_options.hpp"

namespace perfmodel {

/// Sets the price of each kernel of the program, in the order of these stages: its trace or its
/// model; times of nodes; the share that is left to the rank.
void price_program(const ExecutionGraph& graph, const Gpu& gpu, const PredictOptions& options,
                   LoweredProgram& lowered);

/// As its trace or its model says, for all the tasks of the call. `options` name the models.
Price asked_price(const KernelQuestion& question, const Gpu& gpu, const PredictOptions& options,
                  const KernelModel* job_collectives);

/// Kernels of a sharded optimizer take their share of the time, but no less than the shortest
/// kernels do. Measured times stay.
void keep_share(Price& price, double share);

/// Adds to the time and its range, which stay at least 0.
void lengthen(Price& price, double us);

}  // namespace perfmodel
