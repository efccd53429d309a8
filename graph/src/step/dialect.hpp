#pragma once

#include "perfmodel/graph/detail/pytorch.hpp"
#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Whose ops a graph holds: 2.x, or 1.13 for recordings in schema 1.0.1 and where an optimizer step
/// tells so (Adam's two ops per mean, ...). The device is the first GPU that a tensor lies on, else
/// the CPU.
PyTorch dialect_of(const ExecutionGraph& graph);

}  // namespace perfmodel
