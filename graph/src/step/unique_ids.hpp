#pragma once

#include <optional>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// The same graph with ids that are versions: recordings give the id of a freed tensor or storage
/// to another one, here each has an id of its own. Built graphs have such ids already and come back
/// unchanged. A node makes its results, unless it or an op around it takes them, or an op around it
/// returns them. The first version keeps the recorded id.
ExecutionGraph with_unique_ids(const ExecutionGraph& graph);

/// The same for the nodes before `end`; none if they use no id twice.
std::optional<ExecutionGraph> without_reused_ids(const ExecutionGraph& graph, std::int32_t end);

/// Gives tensors of `made`, which was made from `renamed`, the ids back that `recorded` has for
/// them. Autograd unwraps its saved values into tensors that no op returns: the versions of their
/// ids tell less than the ids themselves, once ops that had the ids before are gone.
void restore_recorded_ids(const ExecutionGraph& recorded, const ExecutionGraph& renamed,
                          ExecutionGraph& made);

}  // namespace perfmodel
