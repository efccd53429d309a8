#pragma once

#include <string_view>

#include "graph_builder.hpp"

namespace perfmodel {

/// Opens a region as torch.profiler.record_function() does; closed by graph.end_op(). Before
/// PyTorch 2.0 it allocates a tensor in front and a handle inside.
void begin_region(GraphBuilder& graph, std::string_view name);

}  // namespace perfmodel
