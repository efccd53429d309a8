#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/memory.hpp"
#include "ways_to_fit.hpp"

namespace perfmodel {

/// A question about the memory of one training step.
struct MemoryQuestion {
  std::string graph;  ///< its file
  std::vector<NamedRewrite> rewrites;
  ZeroSharding zero;         ///< with whom one rank divides the model
  std::size_t largest = 10;  ///< tensors at the peak
  bool max_batch = false, expandable_segments = false;
  bool over_time = false;  ///< with the bytes after each op, and when it begins
};

/// Node ids of top-level ops, ascending, and when they begin on the host [us].
using OpStarts = std::vector<std::pair<std::int64_t, double>>;

/// The memory of a step, and changes of it.
struct MemoryAnswer {
  std::string graph_file;
  std::optional<Gpu> gpu;
  ExecutionGraph graph;  ///< rewritten
  std::vector<std::string> rewrites;
  ZeroSharding zero;  ///< with whom one rank divides it
  MemoryReport report;
  std::optional<std::int64_t> batch;       ///< samples per step, if the inputs tell
  std::optional<double> bytes_per_sample;  ///< the same
  std::optional<LargestBatch> most;
  std::optional<WaysToFit> ways;  ///< if it does not fit
  OpStarts op_starts;             ///< for the timeline, if there is a GPU
  std::vector<std::string> warnings;
};

/// If a step does not fit into `gpu`, the ways to make it fit are tried. Errors of rewrites, of
/// `largest_batch` and of data files.
Result<MemoryAnswer> answer_memory(const MemoryQuestion& question, const ExecutionGraph& source,
                                   std::optional<Gpu> gpu, const RewriteByName& rewrite_by_name);

}  // namespace perfmodel
