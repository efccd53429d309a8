#pragma once

#include <filesystem>
#include <string>

#include "perfmodel/detail/output_file.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

struct WriteOptions {
  /// The command that built the graph, for its head: "perfmodel build dlrm --preset mlperf".
  std::string generator = "perfmodel";
};

/// The graph in PyTorch's format for execution traces: schema 1.1.1-chakra.0.0.4, nested layout.
/// Nodes come in the order of their ids. Built graphs carry `"built": true` and `"generator"` in
/// the head; times of day are zero. Equal graphs give equal bytes.
///
/// Not kept by ExecutionGraph, so not written: strides, except for `aten::as_strided` results (all
/// others count as dense), tuples other than process groups (lists instead), sizes and
/// rank layout of communication records.
std::string execution_graph_json(const ExecutionGraph& graph, const WriteOptions& options = {});

/// Writes that text; a name that ends in `.gz` is compressed, with time stamp 0. The file appears
/// whole or not at all: it is written under another name in the same folder and then renamed.
Result<void> write_execution_graph(const ExecutionGraph& graph, const std::filesystem::path& file,
                                   const WriteOptions& options = {});

/// The same, but `commit` gives the file its name. For several files that belong together.
Result<OutputFile> write_unnamed_execution_graph(const ExecutionGraph& graph,
                                                 const std::filesystem::path& file,
                                                 const WriteOptions& options = {});

}  // namespace perfmodel
