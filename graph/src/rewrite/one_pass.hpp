#pragma once

#include <string_view>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Fails for graphs of several backward passes per step (rewrite_accumulation()), in the name of a
/// rewrite that tells what the passes make by autograd's numbers.
Result<void> check_one_pass(const ExecutionGraph& graph, std::string_view rewrite);

}  // namespace perfmodel
