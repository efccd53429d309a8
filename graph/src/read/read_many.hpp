#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/graph/detail/read_options.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Called with the number of the file as well; from several threads, never at the same time.
using ReadManyProgress = std::function<void(std::size_t file, std::uint64_t bytes_read_raw,
                                            std::uint64_t raw_size_or_0)>;

struct ReadManyOptions {
  /// For each file; `progress` in it is not called. The limit of kept bytes holds for all files
  /// together: each may take an equal share.
  ReadOptions reading = {};
  std::size_t threads = 0;  ///< threads that read at the same time; 0: one per CPU
  ReadManyProgress progress = {};
};

/// The traces of several ranks, in the order of `files`: the same as one `read_trace` after the
/// other. Error: the error of the first file in this order that has one; files that no thread had
/// begun by then are not read.
Result<std::vector<Trace>> read_traces(std::span<const std::string> files,
                                       const ReadManyOptions& options = {});

/// The same of execution graphs.
Result<std::vector<ExecutionGraph>> read_execution_graphs(std::span<const std::string> files,
                                                          const ReadManyOptions& options = {});

}  // namespace perfmodel
