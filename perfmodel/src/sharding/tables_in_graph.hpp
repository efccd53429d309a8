#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"
#include "perfmodel/sharding/sharding_study.hpp"

namespace perfmodel::sharding {

struct GraphTables {
  std::vector<ShardedTable> tables;   ///< table_0, table_1, ... in the order of their lookups
  std::optional<std::int64_t> batch;  ///< samples per rank, if all lookups have as many
  std::optional<DensePart> dense;     ///< none: no layers that are understood
  std::vector<std::string> warnings;  ///< values that the graph does not hold
};

/// The embedding tables of the first step of a graph, from its lookups: FBGEMM's of several tables
/// at once, `aten::embedding_bag` and `aten::embedding` of single ones, whose lookups in one table
/// are its features.
///
/// For tables that are read at once, a graph holds the sum of rows, of widths and of ids: each
/// table gets its share, and a warning says so. The name of the op contains the optimizer of such
/// tables; single tables use the step's (`Optimizer.step#...`). A rank of a distributed job has
/// only its own tables; if it looks up the samples of all ranks in some and its own in others, both
/// count as its own.
///
/// Linear layers that take each other's results, before the vectors meet, are the bottom MLP, and
/// those after it the top MLP; batched products make the interaction one of dot products, pairs of
/// layers that lead back to their width one of crosses. Layers that do not fit this, or the widths
/// of the tables, are left out with a warning.
///
/// Errors (kImpossible): no lookups, or a lookup whose arguments do not fit its kind.
Result<GraphTables> tables_in_graph(const ExecutionGraph& graph);

/// The layers round the lookups of a recommender's first step (see tables_in_graph()). None without
/// linear layers, or if they are not understood; then `why` has the reason.
std::optional<DensePart> layers_in_graph(const ExecutionGraph& graph,
                                         const std::vector<ShardedTable>& tables, std::string& why);

}  // namespace perfmodel::sharding
