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

/// Computes the results of a node from its arguments, if its kernels' work depends on them: traces
/// record no results. They are in the order of the schema's tensors. Empty if the arguments do not
/// determine them: ops that count (nonzero, unique, masks), lists that old traces leave out, ops
/// whose work follows from their arguments.
/// Sizes as in PyTorch's documentation of torch.nn.Conv2d, ConvTranspose2d, MaxPool2d and of
/// broadcasting; types by its rules of promotion.
std::vector<ResultSizes> results_of(const ExecutionGraph& graph, const Node& node);

/// Gives the results that `results_of` knows the sizes that follow from the arguments now, in a
/// graph whose arguments have others than when its results were made.
void update_results(ExecutionGraph& graph);

}  // namespace perfmodel
