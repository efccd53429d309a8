#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "added_ops.hpp"
#include "perfmodel/detail/scale_out.hpp"
#include "step_gradients.hpp"

namespace perfmodel {

/// Parameters that are gathered together.
struct FsdpUnit {
  double bytes = 0;
  std::size_t parameters = 0;
  DType dtype = DType::kFloat32;
  /// Items of its ops, the first and the last.
  std::int32_t forward_begin = std::numeric_limits<std::int32_t>::max(), forward_end = -1;
  std::int32_t backward_begin = std::numeric_limits<std::int32_t>::max(), backward_end = -1;
  std::int64_t gather = -1;  ///< number of its last gather
};

/// Parameters in forward order, cut as soon as a unit is large enough. Errors: a gradient whose
/// forward op is not known (in the graph `source`).
Result<std::vector<FsdpUnit>> fsdp_units(std::vector<StepGradient> gradients, double unit_bytes,
                                         std::string_view source);

/// Adds the ops of one FullyShardedDataParallel step to the step of one rank, which has these
/// gradients: a unit's gather before its first forward op and, except for the last unit, one unit
/// ahead of its backward ops; its reduce-scatter after its last gradient.
void add_fsdp_step(std::span<const StepGradient> gradients, std::vector<FsdpUnit> units,
                   const ScaleOut& how, AddedOps& to);

/// Optimizer ops after the step's last gradient update the rank's shard only.
void shard_optimizer(std::int32_t last_gradient, std::int64_t world, LoweredProgram& lowered);

}  // namespace perfmodel
