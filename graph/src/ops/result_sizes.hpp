#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"

namespace perfmodel {

/// Type and extents of one result of an op.
struct ResultSizes {
  DType dtype = DType::kUnknown;
  std::vector<std::int64_t> shape;

  friend bool operator==(const ResultSizes&, const ResultSizes&) = default;
};

/// The results of a node whose kernels' work depends on them, from what it was called with: traces
/// record no results. In the order of the op's schema, of its tensors. Empty where the arguments do
/// not say them: ops that count (nonzero, unique, masks), lists that old traces leave out, ops
/// whose work follows from their arguments.
/// Sizes as in PyTorch's documentation of torch.nn.Conv2d, ConvTranspose2d, MaxPool2d and of
/// broadcasting; types by its rules of promotion.
std::vector<ResultSizes> results_of(const ExecutionGraph& graph, const Node& node);

/// Gives the results that `results_of` knows the sizes that follow from the arguments now, in a
/// graph whose arguments have others than when its results were made.
void update_results(ExecutionGraph& graph);

}  // namespace perfmodel
