#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"
#include "tensor_parallel_split.hpp"

namespace perfmodel {

/// How many of the tokens a tensor has: one that a collective receives into, or a view of one
/// rank's tokens.
enum class TokensOf : std::uint8_t { kAllRanks, kOneRank, kViewOfOneRank };

/// Tokens of a step: `batch` sequences of `length`.
struct TokenShape {
  std::int64_t batch = 0, length = 0;
};

struct TensorParallelSizes {
  std::int64_t ranks = 1;
  const ExecutionGraph* source = nullptr;  ///< one rank has all of it
  const TensorSplit* split = nullptr;      ///< how `source` is cut
  std::vector<TokenShape> tokens;          ///< one of an encoder, then one of a decoder
  /// Nodes of the copy that allocate what a collective receives into, or make such a view.
  std::unordered_map<std::int32_t, TokensOf> received;
};

/// Nodes of the source whose results have to be summed over the ranks: products along a dimension
/// that is cut, lookups in a table that is cut. Errors: as divided().
Result<std::vector<bool>> partial_sums(const TensorParallelSizes& sizes);

/// The graph, which was copied from the source, with the sizes of one rank. Errors: heads and other
/// sizes that do not divide, ops whose size rule is missing, sizes that must be equal and are not.
Result<ExecutionGraph> divided(const ExecutionGraph& graph, const TensorParallelSizes& sizes);

}  // namespace perfmodel
