#pragma once

#include <simdjson.h>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Keeps the member "captured" of a file's head and makes warnings of its assumptions, each a
/// sentence with its count and its places in the program.
void read_captured(simdjson::dom::element head, ExecutionGraph& graph);

}  // namespace perfmodel
