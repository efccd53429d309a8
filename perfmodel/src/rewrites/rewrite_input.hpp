#pragma once

#include <span>
#include <string>
#include <vector>

#include "perfmodel/graph/rewrite.hpp"

namespace perfmodel {

/// Applies the rewrites that a question about a graph begins with. A rewrite that changes nothing
/// is a warning of the graph. Fails as `apply_rewrites` does; the error has the graph's file.
Result<ExecutionGraph> rewrite_input(const ExecutionGraph& graph,
                                     std::span<const NamedRewrite> rewrites);

/// The flags of the rewrites, as answers show them.
std::vector<std::string> rewrite_names(std::span<const NamedRewrite> rewrites);
/// "--precision bf16 --batch 64"
std::string rewrite_line(std::span<const NamedRewrite> rewrites);

}  // namespace perfmodel
