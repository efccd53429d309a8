#pragma once

#include <filesystem>
#include <string_view>

#include "perfmodel/graph/detail/read_options.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Reads a PyTorch execution trace, plain or gzip, of any schema from 1.0.0 to 1.1.1 in the flat or
/// the nested layout (told apart by the keys of a node, not by the version text).
///
/// Nodes may come in any order. Orphans (a parent id that no node has) are kept and counted in
/// `warnings`. Errors: unreadable file, broken gzip or JSON, a missing or ill-typed field,
/// duplicate ids, a cycle of parents; a timed trace in place of a graph (the message says so).
Result<ExecutionGraph> read_execution_graph(const std::filesystem::path& file,
                                            const ReadOptions& options = {});

/// The same of JSON text in memory (not compressed). `name` stands for the file in errors and
/// becomes the graph's `source`.
Result<ExecutionGraph> parse_execution_graph(std::string_view text, std::string_view name = "graph",
                                             const ReadOptions& options = {});

}  // namespace perfmodel
