#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// What is wrong with a graph's file at `pointer`.
Unexpected format_error(const std::filesystem::path& file, std::string pointer,
                        std::string message);

/// PyTorch leaves the id of an op with nested tensors at 0, and calls below it name that as their
/// parent. Of several such nodes each gets an id behind all others, so that it counts as the last
/// call of its parent; a warning tells.
void number_nodes_without_id(ExecutionGraph& graph);

/// Salvage: of several nodes with one id the first one in the file stays; a warning tells.
void drop_repeated_ids(ExecutionGraph& graph);

/// Errors: two nodes with one id. Before nodes are sorted, so that the second one of an id is told
/// by its place in the file.
Result<void> check_ids(const ExecutionGraph& graph, const std::filesystem::path& file);

/// Of an indexed graph. Warns of parents that are not in the file. Errors: a cycle of parents, more
/// than `depth` nodes within nodes.
Result<void> check_structure(ExecutionGraph& graph, const std::filesystem::path& file,
                             std::size_t depth, bool salvaged);

/// Warns if an indexed graph has compiled regions, but no kernel that Triton wrote for them: their
/// launcher records kernels while a profiler is on, so that an observer alone sees library ops.
void warn_of_missing_kernels(ExecutionGraph& graph);

}  // namespace perfmodel
