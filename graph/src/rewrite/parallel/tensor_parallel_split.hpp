#pragma once

#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// In which pass a node stands. What a checkpoint computes again counts as forward.
enum class PassOfNode : std::uint8_t { kForward, kBackward, kOptimizer };
std::vector<PassOfNode> passes_of_nodes(const ExecutionGraph& graph);

/// A matrix product with a weight.
struct SplitProduct {
  std::int32_t node = -1;
  std::uint32_t input = 0;  ///< the tensor that is multiplied, into ExecutionGraph::tensors
  std::int64_t weight = 0;  ///< id of the parameter
};

/// What Megatron's tensor parallelism (Shoeybi et al. 2019) cuts in a forward pass: the first
/// product of each block by columns, the one behind it by rows, so that nothing between the two
/// needs another rank's part; the token embedding and the output layer by words.
struct TensorSplit {
  std::unordered_map<std::int64_t, std::size_t> parameters;  ///< id -> dimension that is cut
  std::vector<SplitProduct> columns, rows;
  std::vector<std::int32_t> embeddings;        ///< lookups in a table that is cut by rows
  std::vector<std::int32_t> whole_embeddings;  ///< in other tables: positions, types of tokens
  std::vector<std::int32_t> losses;            ///< log_softmax over the words of all ranks
};

/// Products whose result comes to a norm or is added to the residual stream without a second
/// product stay whole, as BERT's pooler does. Errors: no two products that can be cut, experts,
/// sizes that do not divide by `ranks`.
Result<TensorSplit> find_tensor_split(const ExecutionGraph& graph, std::int64_t ranks);

}  // namespace perfmodel
