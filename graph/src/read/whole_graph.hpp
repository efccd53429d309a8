#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// An error in a graph's file at `pointer`.
Unexpected format_error(const std::filesystem::path& file, std::string pointer,
                        std::string message);

/// PyTorch leaves the id of an op with nested tensors at 0, and calls below it name that as their
/// parent. If there are several such nodes, each gets an id after all others, so that it counts as
/// the last call of its parent, with a warning.
void number_nodes_without_id(ExecutionGraph& graph);

/// Salvage: keeps the first of several nodes with one id, with a warning.
void drop_repeated_ids(ExecutionGraph& graph);

/// Error: two nodes with one id. Called before nodes are sorted, so that the error has the second
/// one's place in the file.
Result<void> check_ids(const ExecutionGraph& graph, const std::filesystem::path& file);

/// Checks an indexed graph. Warns of parents that are not in the file. Errors: a cycle of parents,
/// more than `depth` nodes within nodes.
Result<void> check_structure(ExecutionGraph& graph, const std::filesystem::path& file,
                             std::size_t depth, bool salvaged);

/// Warns if an indexed graph has compiled regions, but no kernel that Triton wrote for them: their
/// launcher records kernels while a profiler is on, so that an observer without a profiler only
/// sees library ops.
void warn_of_missing_kernels(ExecutionGraph& graph);

}  // namespace perfmodel
