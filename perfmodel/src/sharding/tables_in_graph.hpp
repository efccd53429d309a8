#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/sharding/detail/embedding_shards.hpp"

namespace perfmodel::sharding {

struct GraphTables {
  std::vector<ShardedTable> tables;   ///< table_0, table_1, ... in the order of their lookups
  std::optional<std::int64_t> batch;  ///< samples per rank, if all lookups have as many
  std::vector<std::string> warnings;  ///< what the graph does not tell
};

/// The embedding tables of the first step of a graph, from its lookups: FBGEMM's of several tables
/// at once, `aten::embedding_bag` and `aten::embedding` of single ones, whose lookups in one table
/// are its features.
///
/// Of tables that are read at once a graph holds the sum of rows, of widths and of ids: each table
/// gets its share, a warning says so. The optimizer of such tables is in the name of the op; that
/// of single ones is the step's (`Optimizer.step#...`). A rank of a distributed job has its own
/// tables alone; where it looks up the samples of all ranks in some and its own in others, both
/// count as its own.
///
/// Errors (kImpossible): no lookups, or one whose arguments are not those of its kind.
Result<GraphTables> tables_in_graph(const ExecutionGraph& graph);

}  // namespace perfmodel::sharding
