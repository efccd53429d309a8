#pragma once

#include <cstdint>
#include <vector>

#include "perfmodel/graph/rewrites/fusion.hpp"
#include "step/step_view.hpp"

namespace perfmodel {

/// A stretch of the forward pass that TorchDynamo traces as one graph, and its backward functions.
struct CompiledRegion {
  std::vector<std::int32_t> ops = {};        ///< into StepView::forward()
  std::vector<std::int32_t> functions = {};  ///< into BackwardPass::functions
  /// Nodes around several ops that have one of the functions: checkpoints.
  std::vector<std::int32_t> wrappers = {};
  std::int64_t sequence = -1;  ///< autograd's number of the region
};

/// Regions end at ops that TorchDynamo of PyTorch 2 does not trace: collectives of either pass,
/// values that the host reads (`.item()`), sizes that depend on data (`nonzero`), recurrent layers,
/// ops that are neither PyTorch's nor known, and the ends of a forward pass. Copies from the host
/// in front of a region stay outside, and so does the loss, if `extent` says so.
std::vector<CompiledRegion> compiled_regions(const StepView& step, CompileExtent extent);

}  // namespace perfmodel
