#pragma once

#include <simdjson.h>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Keeps the member "captured" of a file's head and makes warnings of its assumptions, each a
/// sentence with how often and where in the program it was made.
void read_captured(simdjson::dom::element head, ExecutionGraph& graph);

}  // namespace perfmodel
