#pragma once

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// The same graph with ids that are versions: recordings give the id of a freed tensor or storage
/// to another one, here each has an id of its own. Built graphs are like that and come back as they
/// are.
///
/// A node makes what it gives, unless it or an op around it takes it, or one around it gives it.
/// The first version keeps the recorded id.
ExecutionGraph with_unique_ids(const ExecutionGraph& graph);

}  // namespace perfmodel
