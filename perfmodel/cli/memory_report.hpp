#pragma once

#include <optional>
#include <string>
#include <vector>

#include "memory_prices.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/memory.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {

/// What the command `memory` found, for all its renderings.
struct MemoryAnswer {
  std::string graph_file;
  std::optional<Gpu> gpu;
  ExecutionGraph graph;  ///< rewritten
  ZeroSharding zero;     ///< with whom one rank divides it
  MemoryReport report;
  std::optional<std::int64_t> batch;       ///< samples per step, if the inputs tell
  std::optional<double> bytes_per_sample;  ///< the same
  std::optional<LargestBatch> most;
  std::optional<MemoryPrices::Ways> ways;  ///< where it does not fit
  OpStarts op_starts;                      ///< for the timeline, where there is a GPU
  std::vector<std::string> warnings;
};

std::string memory_text(const MemoryAnswer& answer);
Json memory_json(const MemoryAnswer& answer);

/// Bytes of each purpose over the ops of the step: a stacked chart if `file` ends in .svg, a table
/// if in .csv. Errors: another ending.
Result<std::string> memory_timeline(const MemoryAnswer& answer, const std::string& file);

}  // namespace perfmodel::cli
