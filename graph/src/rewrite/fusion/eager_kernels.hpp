#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "pointwise_unit.hpp"
#include "step/step_view.hpp"

namespace perfmodel {

/// Ops that run in one kernel, at the place of the first of them.
struct EagerKernel {
  std::vector<PointwiseUnit> units;
  std::vector<std::uint32_t> reads, writes;  ///< mentions in the graph
  std::int64_t elements = 0;
};

struct EagerFusion {
  std::vector<EagerKernel> kernels;
  std::vector<std::int32_t> gone;  ///< nodes
  /// Mentions of views, and the tensors of which they are views: a view may be gone, or come later.
  std::vector<std::pair<std::uint32_t, std::uint32_t>> views;
  bool was_cut = false;  ///< a stretch was, so that another round may find more
};

/// The kernels that Inductor's scheduler makes of neighbouring pointwise ops of an eager program.
EagerFusion eager_kernels(const StepView& step);

}  // namespace perfmodel
