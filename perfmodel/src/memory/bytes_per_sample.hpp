#pragma once

#include <cstdint>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// The same as `bytes_per_sample(graph, batch)`; `twice` is the graph with twice the batch.
double bytes_per_sample(const ExecutionGraph& graph, const ExecutionGraph& twice,
                        std::int64_t batch);

}  // namespace perfmodel
