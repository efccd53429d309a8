#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// How warnings begin that say what a capture assumed.
inline constexpr std::string_view kCapturedPrefix = "captured: ";

/// Whether a graph was captured from its Python code on PyTorch's device `meta` and is no GPU's
/// yet: `retarget` makes it one's.
bool is_to_retarget(const ExecutionGraph& graph);

/// Moves what captures assumed to the front of an answer's warnings.
void put_captured_first(std::vector<std::string>& warnings);

}  // namespace perfmodel
