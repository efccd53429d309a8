#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/result.hpp"
#include "step/step_view.hpp"

namespace perfmodel {

/// An op that ranks share, or that takes part of a shared result.
struct SplitOp {
  enum class Kind : std::uint8_t {
    kColumns,      ///< a product with a weight that is cut by columns
    kRows,         ///< one that is cut by rows
    kLookup,       ///< in a table that is cut by rows
    kWholeLookup,  ///< in another table: positions, types of tokens
    kLoss,         ///< log_softmax over the words of all ranks
  } kind = Kind::kColumns;
  std::int32_t node = -1;
  std::uint32_t input = 0;  ///< the tensor that a product multiplies; into ExecutionGraph::tensors
};

/// Names the ops that Megatron's tensor parallelism (Shoeybi et al. 2019) cuts in a forward pass:
/// the first product of each block by columns, the next one by rows, so that nothing between the
/// two needs another rank's part; the token embedding and the output layer by words.
struct TensorSplit {
  std::vector<SplitOp> ops;
  FactsOfValues<std::int8_t> cut;  ///< dimension of a parameter, -1: whole
};

/// Products whose result comes to a norm or is added to the residual stream without a second
/// product stay whole, as BERT's pooler does. Errors: no two products that can be cut, experts,
/// sizes that do not divide by `ranks`.
Result<TensorSplit> find_tensor_split(const StepView& step, std::int64_t ranks);

}  // namespace perfmodel
