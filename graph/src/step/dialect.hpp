#pragma once

#include <optional>

#include "perfmodel/graph/detail/pytorch.hpp"
#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// The version that a capture names in its head; none: not captured.
std::optional<PyTorch> pytorch_of_capture(const ExecutionGraph& graph);

/// The PyTorch whose ops a graph holds: as a capture says, else 2.x, or 1.13 for recordings in
/// schema 1.0.1 and if an optimizer step tells so (Adam's two ops per mean, ...). The device is the
/// first GPU that a tensor is on, else the CPU.
PyTorch dialect_of(const ExecutionGraph& graph);

}  // namespace perfmodel
