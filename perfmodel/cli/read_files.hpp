#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "read/read_many.hpp"

namespace perfmodel::cli {

// Inputs of commands: files of several ranks are read side by side, and a bar on the terminal shows
// how far that is if it takes more than a second.

Result<std::vector<Trace>> read_trace_files(const std::vector<std::string>& files,
                                            const ReadOptions& reading);
Result<Trace> read_trace_file(const std::string& file, const ReadOptions& reading);

/// A graph, and the timed trace that it was made from where the file is one.
struct GraphInput {
  ExecutionGraph graph;
  std::shared_ptr<const Trace> trace;
};

/// Execution graphs, or Kineto traces in their place (see graph_from_trace).
Result<std::vector<GraphInput>> read_graph_inputs(const std::vector<std::string>& files,
                                                  const ReadOptions& reading);

/// Error: the graph was made from a trace, and the rewrite follows sizes from tensor to tensor or
/// moves ops, for which a trace does not record enough.
Result<void> check_rewrite_of(const GraphInput& input, std::string_view rewrite);

Result<std::vector<ExecutionGraph>> read_graph_files(const std::vector<std::string>& files,
                                                     const ReadOptions& reading);
Result<ExecutionGraph> read_graph_file(const std::string& file, const ReadOptions& reading);

}  // namespace perfmodel::cli
